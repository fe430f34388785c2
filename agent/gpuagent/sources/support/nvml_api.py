"""The only access to NVML. Nothing else imports pynvml; questions and answers are plain data.

So a recording can replace a real GPU: a JSON object of call → answer or error.
"""

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from gpuagent.errors import SourceUnavailableError
from gpuagent.sources.support.nvml_calls import (
    VALUE_MEMBERS,
    Batch,
    Call,
    Counters,
    SampleBuffer,
    list_processes_v1,
    wait_event_v1,
)

NOT_SUPPORTED = 3
_LIBRARY_NOT_FOUND = 12
GPU_IS_LOST = 15

# Invalid argument (to an older driver), not supported, no permission, function not found, no ECC, version mismatch,
# deprecated: another attempt gets the same answer.
_UNSUPPORTED = frozenset({2, NOT_SUPPORTED, 4, 13, 22, 25, 26, 30})

# Not initialised, no driver, no library, lost, needs a reset, other driver version, GPU not found: nothing of this
# GPU is readable.
_LOST = frozenset({1, 9, _LIBRARY_NOT_FOUND, GPU_IS_LOST, 16, 18, 28})

_REMEDIES = {
    4: "let this user open /dev/nvidia*",
    9: "check that nvidia-smi works; load the NVIDIA driver",
    _LIBRARY_NOT_FOUND: "on a node with a GPU: install the NVIDIA driver; "
    "in a container, pass the GPU in (docker --gpus all, apptainer --nv, ch-fromhost --nvidia)",
    18: "the driver was updated while loaded: reload the nvidia modules or reboot",
    999: "check that nvidia-smi works; in a container, restart it: it has lost the GPU",
}

# NVML asks the driver to publish a kind of figure in shared memory when it is first called for it. Of requests that two
# threads make at once, the driver keeps one. The other figures then cost a call to the GPU's firmware, 0.3 to 3 ms
# instead of 4 to 30 µs, until NVML is closed (docs/benchmarks.md).
_FIRST_CALLS = threading.Lock()

_LIBRARY = "libnvidia-ml.so.1"

# A GPU that fails again and again would otherwise never be drained; the rest follows with the next reading.
_MOST_EVENTS = 100


class NvmlError(Exception):
    """A question that NVML did not answer this time."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code

    @property
    def no_library(self) -> bool:
        """Return whether NVML is not installed here at all."""
        return self.code == _LIBRARY_NOT_FOUND


class NvmlUnsupportedError(NvmlError):
    """A question that this GPU, driver or user never gets answered."""


class NvmlLostError(NvmlError):
    """A GPU or driver that cannot be reached any more."""


def nvml_error(code: int, words: str) -> NvmlError:
    """Return the error for an NVML return code."""
    if code in _UNSUPPORTED:
        return NvmlUnsupportedError(code, words)
    return NvmlLostError(code, words) if code in _LOST else NvmlError(code, words)


def unavailable(error: NvmlError) -> SourceUnavailableError:
    """Return the reason why a source of NVML cannot work, with the remedy."""
    return SourceUnavailableError(f"NVML: {error}", _REMEDIES.get(error.code), is_fault=not error.no_library)


def is_instance(uuid: str) -> bool:
    """Return whether this is the UUID of a MIG instance, not of a whole GPU."""
    return uuid.startswith("MIG-")


class Nvml(Protocol):
    """An open session with NVML. NVML ends, and can restart, when all sessions are closed."""

    def devices(self) -> Sequence[str]:
        """Return the UUIDs of the GPUs that can be reached, in NVML's order.

        Raises NvmlError: there are GPUs, but none can be reached.
        """
        ...

    def instances(self, device: str) -> Sequence[str]:
        """Return the UUIDs of the MIG instances of a GPU, in NVML's order: those that this user may use.

        Raises NvmlError: the GPU does not answer.
        """
        ...

    def ask(self, function: str, device: str | None = None, *arguments: int) -> Any:
        """Return the answer of pynvml's `function` on a GPU or MIG instance (None: on the system), as JSON holds it.

        Structures are dicts. `nvmlDeviceGetFieldValues` takes one field and returns its number; `nvmlDeviceGetSamples`
        returns pairs of time stamp and number. Raises NvmlError: there is no answer.
        """
        ...

    def poll(self, device: str, calls: Sequence[Call]) -> Callable[[], Sequence[Any]]:
        """Ask several cheap questions, which have been answered before; return a function that decodes the answers.

        An answer is as from `ask`, or None where this one failed. Raises NvmlError: the first call that failed.
        """
        ...

    def gpm(self, device: str, metrics: Sequence[int], now_nano: int) -> Mapping[int, float | None] | None:
        """Return GPM's figures of a GPU or MIG instance, each for the time since a call at least 100 ms before.

        Metrics that the GPU lacks are left out, those that failed this time are None. None instead of all: there was no
        such call yet, or one just before. After a failure the next call is a first one. Raises NvmlError: it has no
        GPM, or does not answer.
        """
        ...

    def events(self, device: str, kinds: int) -> Sequence[tuple[int, int]]:
        """Return kind and number of each event of a GPU since the call before; never wait.

        The first call, and one after a failure, starts to listen for `kinds`, bits of nvmlEventType…. Raises NvmlError:
        it reports no such events, or does not answer.
        """
        ...

    def close(self) -> None:
        """End the session."""
        ...


OpenNvml = Callable[[], Nvml]


def open_nvml() -> Nvml:
    """Start a session with the driver of this node. Raises NvmlError if there is no driver, or it does not answer."""
    if "pynvml" not in sys.modules:  # 6 MiB and 40 ms, which nodes without GPU and every `--help` save
        try:
            ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise nvml_error(_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found") from error
    return _Driver()


class _Driver:
    """NVML itself, through pynvml."""

    def __init__(self) -> None:
        import pynvml

        self._pynvml = pynvml
        self._handles: dict[str, Any] = {}
        # By the calls' id, which is theirs while a batch holds them: their hash would be computed each time.
        self._batches: dict[tuple[str, int], Batch] = {}
        self._samples: dict[tuple[str, int], SampleBuffer] = {}
        self._counters: dict[str, Counters] = {}
        self._events: dict[str, DriverEvents] = {}
        self._called: set[Hashable] = set()
        try:
            with _FIRST_CALLS:
                pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise nvml_error(error.value, str(error)) from error

    def _alone_at_first(self, *call: Hashable) -> contextlib.AbstractContextManager[None]:
        """Let the session's first call of each kind run while no other session makes a first call."""
        return contextlib.nullcontext() if call in self._called else self._alone(call)

    @contextlib.contextmanager
    def _alone(self, call: Hashable) -> Iterator[None]:
        with _FIRST_CALLS:
            try:
                yield
            finally:
                self._called.add(call)

    def devices(self) -> Sequence[str]:
        found: list[str] = []
        failure: NvmlError | None = None
        for index in range(self.ask("nvmlDeviceGetCount")):
            try:
                found.append(self._found(self._pynvml.nvmlDeviceGetHandleByIndex, index))
            except NvmlError as error:
                failure = error
        if failure and not found:
            raise failure
        return found

    def instances(self, device: str) -> Sequence[str]:
        try:
            most = self.ask("nvmlDeviceGetMaxMigDeviceCount", device)
        except NvmlUnsupportedError:
            return ()
        found: list[str] = []
        for index in range(most):
            # No instance has this index, or this user may not see it.
            with contextlib.suppress(NvmlError):
                found.append(self._found(self._pynvml.nvmlDeviceGetMigDeviceHandleByIndex, self._handle(device), index))
        return found

    def _found(self, find: Callable[..., Any], *arguments: Any) -> str:
        """Return the UUID of the device whose handle `find` returns, and remember the handle."""
        try:
            handle = find(*arguments)
            uuid = str(self._pynvml.nvmlDeviceGetUUID(handle))
        except self._pynvml.NVMLError as error:
            raise nvml_error(error.value, str(error)) from error
        self._handles[uuid] = handle
        return uuid

    def ask(self, function: str, device: str | None = None, *arguments: int) -> Any:
        try:
            # Of the arguments only the field tells one kind of figure from another; a time differs in each call.
            field = arguments if function == "nvmlDeviceGetFieldValues" else ()
            with self._alone_at_first(function, device, field):
                if function == "nvmlDeviceGetSamples" and device is not None:
                    return self._read_samples(device, *arguments)
                if device is None:
                    return _plain(self._function(function)(*arguments))
                return _plain(self._function(function)(self._handle(device), *arguments))
        except self._pynvml.NVMLError as error:
            raise self._failure(device, error) from error

    def _function(self, name: str) -> Callable[..., Any]:
        if name == "nvmlDeviceGetFieldValues":
            return self._field_value
        if name == "nvmlDeviceGetComputeRunningProcesses_v1":
            return partial(list_processes_v1, self._pynvml)
        function: Callable[..., Any] | None = getattr(self._pynvml, name, None)
        if function is None:
            raise NvmlUnsupportedError(self._pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, f"this pynvml has no {name}")
        return function

    def _handle(self, uuid: str) -> Any:
        if uuid not in self._handles:
            self._handles[uuid] = self._pynvml.nvmlDeviceGetHandleByUUID(uuid)
        return self._handles[uuid]

    def _field_value(self, handle: Any, field: int) -> float:
        answer = self._pynvml.nvmlDeviceGetFieldValues(handle, [field])[0]
        if answer.nvmlReturn:
            raise self._pynvml.NVMLError(answer.nvmlReturn)
        number: float = getattr(answer.value, VALUE_MEMBERS[answer.valueType])
        return number

    def _read_samples(self, device: str, kind: int, since_micros: int) -> list[tuple[int, float]]:
        if (device, kind) not in self._samples:
            self._samples[device, kind] = SampleBuffer(self._pynvml, self._handle(device), kind)
        return self._samples[device, kind].read(since_micros)

    def poll(self, device: str, calls: Sequence[Call]) -> Callable[[], Sequence[Any]]:
        try:
            batch = self._batches.get((device, id(calls)))
            if batch is not None:
                return partial(batch.decode, batch.read())
            batch = self._batches[device, id(calls)] = Batch(self._pynvml, self._handle(device), calls)
            with _FIRST_CALLS:
                return partial(batch.decode, batch.read())
        except self._pynvml.NVMLError as error:
            self._batches.pop((device, id(calls)), None)  # who asks again prepares other calls
            raise self._failure(device, error) from error

    def gpm(self, device: str, metrics: Sequence[int], now_nano: int) -> Mapping[int, float | None] | None:
        try:
            if device not in self._counters:
                handle = self._handle(device)
                self._counters[device] = Counters(self._pynvml, handle, is_instance=is_instance(device))
            with self._alone_at_first("gpm", device, tuple(metrics)):
                answers = self._counters[device].read(metrics, now_nano)
        except self._pynvml.NVMLError as error:
            # Counters restart when a GPU is reset: samples from before cannot be compared with later ones.
            _release(self._counters, device)
            raise self._failure(device, error) from error
        if answers is None:
            return None
        return {
            answer.metricId: None if answer.nvmlReturn else answer.value
            for answer in answers
            if answer.nvmlReturn not in _UNSUPPORTED
        }

    def events(self, device: str, kinds: int) -> Sequence[tuple[int, int]]:
        try:
            if device not in self._events:
                self._events[device] = DriverEvents(self._pynvml, self._handle(device), kinds)
            return self._events[device].drain()
        except self._pynvml.NVMLError as error:
            _release(self._events, device)
            raise self._failure(device, error) from error

    def _failure(self, device: str | None, error: Any) -> NvmlError:
        """Return pynvml's error as ours. A lost GPU is looked up again when it is asked again."""
        failure = nvml_error(error.value, str(error))
        if device is not None and isinstance(failure, NvmlLostError):
            self._handles.pop(device, None)
            self._batches.clear()
            self._samples.clear()
        return failure

    def close(self) -> None:
        self._handles.clear()
        self._batches.clear()
        self._samples.clear()
        for device in tuple(self._counters):
            _release(self._counters, device)
        for device in tuple(self._events):
            _release(self._events, device)
        # A driver that is gone already needs no end.
        with contextlib.suppress(self._pynvml.NVMLError):
            self._pynvml.nvmlShutdown()


class DriverEvents:
    """The events of one GPU since this object exists, such as Xid errors; pynvml's exceptions pass through."""

    def __init__(self, pynvml: Any, handle: Any, kinds: int) -> None:
        """Listen for `kinds`, bits of nvmlEventType…"""
        self._pynvml = pynvml
        self._set = pynvml.nvmlEventSetCreate()
        try:
            pynvml.nvmlDeviceRegisterEvents(handle, kinds, self._set)
        except pynvml.NVMLError:
            self.release()
            raise

    def drain(self) -> list[tuple[int, int]]:
        """Return kind and number of each event that was not returned yet; never wait."""
        happened: list[tuple[int, int]] = []
        while len(happened) < _MOST_EVENTS:
            try:
                event = self._wait()
            except self._pynvml.NVMLError as error:
                # A GPU that fell off the bus reports that before it is lost; the next reading raises the loss itself.
                if happened or error.value == self._pynvml.NVML_ERROR_TIMEOUT:
                    break
                raise
            happened.append((event.eventType, event.eventData))
        return happened

    def _wait(self) -> Any:
        try:
            return self._pynvml.nvmlEventSetWait_v2(self._set, 0)
        except self._pynvml.NVMLError as error:
            if error.value != self._pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                raise
            return wait_event_v1(self._pynvml, self._set)

    def release(self) -> None:
        """Stop listening; the object cannot be used afterwards."""
        with contextlib.suppress(self._pynvml.NVMLError):
            self._pynvml.nvmlEventSetFree(self._set)


def _release(held: dict[str, Any], device: str) -> None:
    """Free the counters or events of a device, where there are any."""
    if device in held:
        held.pop(device).release()


def _plain(answer: Any) -> Any:
    """Return pynvml's answer as JSON holds it."""
    if answer is None or isinstance(answer, (int, float, str)):
        return answer
    if isinstance(answer, bytes):
        return answer.decode(errors="replace")
    if isinstance(answer, (list, tuple)):
        return [_plain(part) for part in answer]
    if isinstance(answer, ctypes.Structure):
        return {name: _plain(getattr(answer, name)) for name, *_ in answer._fields_}
    return {name: _plain(part) for name, part in vars(answer).items()}
