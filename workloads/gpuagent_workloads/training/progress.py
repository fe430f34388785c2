"""The progress of a training: its beginning or, after a restart of an elastic one, its checkpoint."""

import os
import pickle
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import TrainingConfig
from gpuagent_workloads.training.ranks import Ranks
from gpuagent_workloads.training.restarts import StepLog, read_log, report_account, settle

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


# By name, what has `state_dict` and `load_state_dict`: a network, optimizer, schedule or `Precision`.
Parts = Mapping[str, Any]


def save(path: Path, position: Position, parts: Parts) -> None:
    """Write a checkpoint, and only then replace the one before it. Raises WorkloadError where it cannot be written."""
    content = {"position": asdict(position), "parts": {name: part.state_dict() for name, part in parts.items()}}
    unfinished = path.with_suffix(".unfinished")
    try:
        with unfinished.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except (OSError, RuntimeError) as error:
        raise WorkloadError(f"cannot write the checkpoint {path}: {error}") from error


def restore(path: Path, parts: Parts) -> Position | None:
    """Restore the parts from a checkpoint and return its position; None: there is no checkpoint.

    Raises WorkloadError: it cannot be read, or it is of another training.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(content["parts"][name])
        return Position(**content["position"])
    except FileNotFoundError:
        return None
    except (OSError, RuntimeError, pickle.UnpicklingError, EOFError, LookupError, TypeError, ValueError) as error:
        raise WorkloadError(
            f"cannot continue from {path} ({type(error).__name__}: {error}). "
            "If it is damaged or of another training, give an empty --checkpoint directory"
        ) from error


# Files of the --checkpoint directory.
CHECKPOINT, LOG = "checkpoint.pt", "steps.log"


def resume(config: TrainingConfig, ranks: Ranks, device: torch.device, parts: Parts) -> Progress:
    """Return the progress of the training: its beginning or, after a restart of an elastic one, its checkpoint.

    Call it after building `parts`, and before making the data's order.

    Args:
        config: how to train; with --elastic, where checkpoints are.
        ranks: which train together, and have met.
        parts: the content of a checkpoint, by name: networks (not their parallel or compiled forms), optimizers,
            schedules and the precision. Their state is restored.

    Raises:
        WorkloadError: the checkpoint cannot be used.
    """
    if config.elastic is None:
        return Progress(ranks)
    if config.checkpoint is None:
        raise WorkloadError("--elastic needs --checkpoint DIRECTORY where another program starts the ranks")
    return ElasticProgress(config, ranks, device, parts)


class ElasticProgress(Progress):
    """A training that writes checkpoints and, on rank 0, the log of the steps."""

    def __init__(self, config: TrainingConfig, ranks: Ranks, device: torch.device, parts: Parts) -> None:
        super().__init__(ranks)
        self._directory = Path(config.checkpoint or "")
        self._directory.mkdir(parents=True, exist_ok=True)
        self._samples_per_step = config.samples_per_step * ranks.size
        self._config, self._device, self._parts = config, device, parts
        self._log: StepLog | None = None
        found = restore(self._directory / CHECKPOINT, parts)
        self.resumed = found is not None
        found_step = found.step if found else -1
        if int(self.ranks.agree(found_step)) != found_step:
            raise WorkloadError(
                f"rank 0 and rank {self.ranks.rank} see different checkpoints in {self._directory}: "
                "--checkpoint must name a directory that all nodes share"
            )
        self.position = found or self.position

    def recorded(self, step: Step) -> Step:
        """Return a function that takes a step, logs it and, at intervals, writes a checkpoint."""
        if not self.resumed:
            self.position = replace(self.position, warmup_samples=self._config.warmup * self._samples_per_step)
        if self.ranks.rank == 0:
            self._log = StepLog(self._directory / LOG, self._device, ranks=self.ranks.size, goes_on=self.resumed)
            self._log.start(self.position.step)
        if not self.resumed:
            # A restart before the next checkpoint must not warm up again.
            self._save()

        def recorded_step() -> torch.Tensor:
            loss = step()
            position = self.position
            self.position = replace(
                position, step=position.step + 1, measured_samples=position.measured_samples + self._samples_per_step
            )
            if self._log:
                self._log.step(self.position.step)
            if self.position.step % self._config.checkpoint_every == 0:
                self._save()
            return loss

        return recorded_step

    def finish(self, reporter: Reporter) -> Work:
        """Return the work measured over all restarts; rank 0 reports their cost."""
        config = self._config
        done = batches = measured_seconds = 0.0
        if self._log:
            self._log.catch_up()
            self._log.close()
            account = settle(read_log(self._directory / LOG))
            report_account(account, config.items_per_step, f"{config.item}/s", reporter)
            done, batches, measured_seconds = account.steps, account.batches / self.ranks.size, account.seconds
        return Work(
            steps=int(self.ranks.agree(done)),
            batches=self.ranks.agree(batches),
            seconds=self.ranks.agree(measured_seconds),
        )

    def leave(self) -> None:
        """Delete the checkpoint on rank 0, and part. Without it an earlier failure would repeat all steps."""
        if self._log:
            (self._directory / CHECKPOINT).unlink(missing_ok=True)
        super().leave()

    def _save(self) -> None:
        if self._log:
            self._log.catch_up()
            began_seconds = time.perf_counter()
            save(self._directory / CHECKPOINT, self.position, self._parts)
            self._log.checkpoint(self.position.step, time.perf_counter() - began_seconds)
