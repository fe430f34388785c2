"""Observation of a program that does not report: steps of torch's optimizers and data loaders, or of Keras.

`start` only waits for the program to import torch or Keras. Nothing here may change what the program computes, prints
or returns: an error in this module ends the observation, never the program.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from gpuagent_report.steps import StepRecorder

# The process's recorder; None: nothing is observed.
_observer: Observer | None = None


def start() -> None:
    """Observe this process once it has imported torch or Keras."""
    if os.environ.get("GPUAGENT_RUN_DIR"):
        sys.meta_path.insert(0, _Finder({"torch": _observe_torch, "keras": _observe_keras}))


def hand_over() -> StepRecorder | None:
    """Observe no longer, because the program reports by itself; return the recorder; None: nothing was observed."""
    if _observer is None:
        return None
    recorder, _observer.recorder = _observer.recorder, StepRecorder(None)
    return recorder


class _Finder:
    """A finder that finds nothing, but calls a function after the import of a module."""

    def __init__(self, after: dict[str, Callable[[Any], None]]) -> None:
        self._after = after

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        and_then = self._after.pop(name, None)
        if and_then is None:
            return None
        if not self._after:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader: Any = spec.loader if spec else None
        if not hasattr(loader, "exec_module"):
            return spec
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            loader.__dict__.pop("exec_module", None)
            try:
                and_then(module)
            except Exception:  # noqa: BLE001, S110 - the program goes on, unobserved
                pass

        loader.exec_module = exec_module
        return spec


def _observe() -> Observer:
    global _observer  # noqa: PLW0603
    if _observer is None:
        _observer = Observer(StepRecorder(os.environ["GPUAGENT_RUN_DIR"], "observed"))
        atexit.register(_observer.recorder.finish)
        os.register_at_fork(after_in_child=_observer.recorder.forget)
    return _observer


def _observe_torch(torch: Any) -> None:
    register = getattr(sys.modules["torch.optim.optimizer"], "register_optimizer_step_post_hook", None)
    if register is None:
        return  # a torch before 2.0
    observer = _observe()
    register(observer.end_step)
    loaders = sys.modules["torch.utils.data.dataloader"]._BaseDataLoaderIter
    loaders.__next__ = observer.wrap_next(loaders.__next__)
    torch.save = sys.modules["torch.serialization"].save = observer.wrap(torch.save, "checkpoint")  # type: ignore[attr-defined]
    torch.nn.Module.eval = observer.wrap(torch.nn.Module.eval, "validation")


def _observe_keras(keras: Any) -> None:
    observer = _observe()
    callbacks = keras.callbacks.CallbackList
    callbacks.on_train_batch_end = observer.wrap_batch_end(callbacks.on_train_batch_end)
    callbacks.on_test_begin = observer.wrap(callbacks.on_test_begin, "validation")
    for name in ("save", "save_weights"):
        setattr(keras.Model, name, observer.wrap(getattr(keras.Model, name), "checkpoint"))


class Observer:
    """The events of torch in this process, made into steps. What runs in each step is written for speed."""

    def __init__(self, recorder: StepRecorder) -> None:
        self.recorder = recorder
        # Optimizers that have stepped in this step, by identity: a GAN has two. The next step of any ends it.
        self._stepped: set[int] = set()
        self._reason: str | None = None
        # The data set of the last batch by identity; its usual batch size; True if the main thread asks for batches.
        self._data = 0
        self._batch_size: int | None = None
        self._is_waiting = False
        # Since the last step: the items, and the time of waiting for them.
        self._items = 0
        self._waited_nano = 0

    def end_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """Take note of a step of an optimizer: torch calls this after each."""
        recorder = self.recorder
        if recorder.is_silent:
            return
        stepped = self._stepped
        if id(optimizer) not in stepped:
            stepped.add(id(optimizer))
            if len(stepped) > 1:
                return
        elif len(stepped) > 1:
            self._stepped = {id(optimizer)}
        try:
            # No batch since the last step is none: loaders that fetch ahead have had it before.
            recorder.end_step(self._items if self._data else None, self._reason, self._waited_nano)
        except Exception:  # noqa: BLE001
            recorder.is_silent = True
        self._items = self._waited_nano = 0
        self._reason = None

    # torch.compile leaves such functions to Python, and reads this attribute rather than a call that imports it.
    end_step._torchdynamo_disable = True  # type: ignore[attr-defined]

    def wrap_next(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return `_BaseDataLoaderIter.__next__` with its batches counted."""

        @functools.wraps(function)
        def __next__(iterator: Any) -> Any:
            asked_nano = time.perf_counter_ns()
            batch = function(iterator)
            if self.recorder.is_silent:
                return batch
            try:
                if id(iterator._dataset) != self._data:
                    # Batches of another data set are a validation, or the training after it.
                    if self._items:
                        self._reason = self._reason or "validation"
                    self._data, self._items, self._waited_nano = id(iterator._dataset), 0, 0
                    self._batch_size = getattr(iterator._index_sampler, "batch_size", None)
                    # Only the thread that trains waits; others fetch ahead.
                    self._is_waiting = threading.current_thread() is threading.main_thread()
                first = batch[0] if type(batch) in (list, tuple) and batch else batch
                shape = getattr(first, "shape", None)
                if shape and shape[0] == self._batch_size:
                    self._items += shape[0]
                else:
                    self._items += count_items(batch, getattr(iterator._index_sampler, "batch_size", None)) or 0
                if self._is_waiting:
                    self._waited_nano += time.perf_counter_ns() - asked_nano
            except Exception:  # noqa: BLE001
                self.recorder.is_silent = True
            return batch

        __next__._torchdynamo_disable = True  # type: ignore[attr-defined]
        return __next__

    def wrap(self, function: Callable[..., Any], reason: str) -> Callable[..., Any]:
        """Return `function` with a note of each call; of two reasons a checkpoint counts."""

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if self._reason != "checkpoint":
                self._reason = reason
            return function(*args, **kwargs)

        wrapper._torchdynamo_disable = True  # type: ignore[attr-defined]
        return wrapper

    def wrap_batch_end(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `CallbackList.on_train_batch_end` of Keras, which ends a step."""

        @functools.wraps(function)
        def on_train_batch_end(*args: Any, **kwargs: Any) -> Any:
            try:
                self.recorder.end_step(None, self._reason)
            except Exception:  # noqa: BLE001
                self.recorder.is_silent = True
            self._reason = None
            return function(*args, **kwargs)

        return on_train_batch_end


def count_items(batch: Any, batch_size: int | None) -> int | None:
    """Return the number of samples in a batch of any shape; None: it is not known.

    Args:
        batch: from a data loader: a tensor, or tensors in lists and dictionaries.
        batch_size: the usual number; None: not known.
    """
    first = None
    for size in _sizes(batch, 3):
        if batch_size is None or size == batch_size:
            return size
        first = first or size
    return first or batch_size


def _sizes(batch: Any, depth: int) -> Iterator[int]:
    """Yield what may be the number of samples: the first dimension of tensors, then the length of lists."""
    shape = getattr(batch, "shape", None)
    if shape is not None:
        if len(shape):
            yield int(shape[0])
    elif depth and isinstance(batch, (Mapping, list, tuple)):
        parts = list(batch.values()) if isinstance(batch, Mapping) else batch
        for part in parts[:4]:
            yield from _sizes(part, depth - 1)
        if not isinstance(batch, Mapping):
            yield len(batch)
