"""A callback for the Trainer of Lightning: `Trainer(callbacks=[GpuagentCallback()])`."""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from gpuagent_report import Run, report
from gpuagent_report.observe import count_items


class GpuagentCallback(Callback):  # type: ignore[misc]
    """The reports of a Trainer: its steps with the samples of this process, its metrics, its pauses."""

    def __init__(self) -> None:
        self._run: Run | None = None
        self._steps = 0
        self._items = 0

    def on_train_start(self, trainer: Any, _module: Any) -> None:
        """Begin the reports."""
        self._run, self._steps, self._items = report(), trainer.global_step, 0

    def on_train_batch_end(self, trainer: Any, _module: Any, _outputs: Any, batch: Any, *_: Any) -> None:
        """Report a step, unless gradients are still being accumulated."""
        self._items += count_items(batch, None) or 0
        if self._run and trainer.global_step > self._steps:
            self._run.step(items=self._items or None)
            self._steps, self._items = trainer.global_step, 0

    def on_validation_start(self, *_: Any) -> None:
        """Take note of a validation."""
        if self._run:
            self._run.gap("validation")

    def on_save_checkpoint(self, *_: Any) -> None:
        """Take note of a checkpoint."""
        if self._run:
            self._run.gap("checkpoint")

    def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
        """Report the metrics; reading them waits for the GPU, so not in every step."""
        for name, value in trainer.callback_metrics.items():
            if self._run:
                self._run.metric(name, float(value), step=trainer.global_step)

    def on_train_end(self, *_: Any) -> None:
        """End the reports."""
        if self._run:
            self._run.finish()
