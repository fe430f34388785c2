"""A callback for the Trainer of Hugging Face: `Trainer(..., callbacks=[GpuagentCallback()])`."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from gpuagent_report import Run, report


class GpuagentCallback(TrainerCallback):  # type: ignore[misc]
    """The reports of a Trainer: its steps with the samples of this process, its logged numbers, its pauses."""

    def __init__(self) -> None:
        self._run: Run | None = None

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Begin the reports."""
        self._run = report()

    def on_step_end(self, args: Any, *_: Any, **__: Any) -> None:
        """Report a step of the optimizer."""
        if self._run:
            self._run.step(items=args.train_batch_size * args.gradient_accumulation_steps)

    def on_evaluate(self, *_: Any, **__: Any) -> None:
        """Take note of a validation."""
        if self._run:
            self._run.gap("validation")

    def on_save(self, *_: Any, **__: Any) -> None:
        """Take note of a checkpoint."""
        if self._run:
            self._run.gap("checkpoint")

    def on_log(self, _args: Any, state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
        """Report the logged numbers."""
        for name, value in (logs or {}).items():
            if self._run and isinstance(value, (int, float)):
                self._run.metric(name, value, step=state.global_step)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """End the reports."""
        if self._run:
            self._run.finish()
