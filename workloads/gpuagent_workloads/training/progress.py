"""The progress of a training: its beginning or, after a restart of an elastic one, its checkpoint."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import TrainingConfig
from gpuagent_workloads.training.ranks import Ranks

# Takes one training step and returns its loss, a scalar that is still on the device.
Step = Callable[[], torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The work done by all ranks together."""

    # Measured steps.
    step: int = 0
    # Samples of the data, before the measured steps.
    warmup_samples: int = 0
    # Samples of the data, in the measured steps.
    measured_samples: int = 0

    @property
    def samples(self) -> int:
        """Samples of the data in all steps."""
        return self.warmup_samples + self.measured_samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The measured work."""

    # Steps of the training; lost and repeated ones count once.
    steps: int
    # This rank's share, in batches of a rank.
    batches: float
    # Including lost and repeated steps.
    seconds: float


class Progress:
    """The progress of a training without restarts."""

    def __init__(self, ranks: Ranks | None = None) -> None:
        """Begin a training of these ranks; None: of one."""
        self.ranks = ranks or Ranks()
        self.position = Position()
        # Whether this process continues the training of another one, without a warm-up.
        self.resumed = False

    def steps_to_go(self, config: TrainingConfig, steps_per_epoch: int) -> int | None:
        """Return the number of measured steps still to take; None: as many as the least time allows."""
        if config.steps is not None:
            return max(1, config.steps - self.position.step)
        if config.epochs is None:
            return None
        done = self.position.measured_samples // (config.samples_per_step * self.ranks.size)
        return max(1, config.epochs * steps_per_epoch - done)

    def recorded(self, step: Step) -> Step:
        """Return a function that takes a measured step and records it."""
        return step

    def finish(self, reporter: Reporter) -> Work | None:  # noqa: ARG002 - an elastic training has something to report
        """Report the restarts and return the work measured over all of them; None: there were none."""
        return None

    def leave(self) -> None:
        """Part from the other ranks, after everything that a restart could repeat."""
        self.ranks.leave()
