"""How far a training is: at its beginning or, after a restart of an elastic one, where its checkpoint left it."""

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
    """What a training has done, all ranks together."""

    # Measured steps.
    step: int = 0
    # Of the data, before the measured steps.
    warmup_samples: int = 0
    # Of the data, in the measured steps.
    measured_samples: int = 0

    @property
    def samples(self) -> int:
        """Samples of the data in all steps."""
        return self.warmup_samples + self.measured_samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What was measured."""

    # Of which the training consists; those that were lost and done again count once.
    steps: int
    # This rank's share of them, in batches of a rank.
    batches: float
    # That they took, what was lost and repeated included.
    seconds: float


class Progress:
    """A training from its beginning to its end, without restarts."""

    def __init__(self, ranks: Ranks | None = None) -> None:
        """Take the ranks that train together; None: there is one."""
        self.ranks = ranks or Ranks()
        self.position = Position()
        # Whether this process goes on where another one stopped, so that nothing needs to be warmed up.
        self.resumed = False

    def steps_to_go(self, config: TrainingConfig, steps_per_epoch: int) -> int | None:
        """Return how many measured steps are still to be taken; None: as many as the least time takes."""
        if config.steps is not None:
            return max(1, config.steps - self.position.step)
        if config.epochs is None:
            return None
        done = self.position.measured_samples // (config.samples_per_step * self.ranks.size)
        return max(1, config.epochs * steps_per_epoch - done)

    def recorded(self, step: Step) -> Step:
        """Return what takes a measured step: `step` and whatever is to be noted after it."""
        return step

    def finish(self, reporter: Reporter) -> Work | None:  # noqa: ARG002 - an elastic training has something to report
        """Report what befell the training; return what was measured over all restarts. None: what this process did."""
        return None

    def leave(self) -> None:
        """Part from the other ranks, when nothing more can fail that a restart would mend."""
        self.ranks.leave()
