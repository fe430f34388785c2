"""One model in training, from its set-up to its figures: what all training workloads do alike.

The set-up covers seeds, threads, device, ranks, precision, and a record of the installed software.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.compiling import compiled
from gpuagent_workloads.training.config import ImageTrainingConfig, TrainingConfig
from gpuagent_workloads.training.device import choose_device, report_device, report_software
from gpuagent_workloads.training.images import placed
from gpuagent_workloads.training.loop import Feed, Figures, train
from gpuagent_workloads.training.model import (
    StepFlops,
    report_arithmetic,
    report_counts,
    report_mfu,
    report_minimum_bytes,
)
from gpuagent_workloads.training.order import Order
from gpuagent_workloads.training.precision import Precision
from gpuagent_workloads.training.progress import resume
from gpuagent_workloads.training.ranks import Ranks, parallel

# The tensors of a batch, on the device.
Batch = tuple[torch.Tensor, ...]


class Session:
    """A model with its optimizer, on the device of this rank."""

    def __init__(
        self,
        config: TrainingConfig,
        reporter: Reporter,
        build: Callable[[], nn.Module],
        make_optimizer: Callable[[nn.Module, int], torch.optim.Optimizer],
        make_schedule: Callable[[torch.optim.Optimizer], LRScheduler] | None = None,
    ) -> None:
        """Begin the phase `setup`, meet the other ranks, and build the model or restore it from a checkpoint.

        Args:
            build: returns the model with new weights.
            make_optimizer: returns the optimizer of a model, given the number of ranks.
            make_schedule: returns the schedule of its learning rate, which advances after each epoch.

        Raises:
            MisuseError: the device or the precision is not available, or --ranks contradicts torchrun.
            WorkloadError: the ranks did not meet, or the checkpoint is unusable.
        """
        reporter.phase("setup")
        self._config, self._reporter = config, reporter
        self.device, self.precision, self.ranks = set_up(config, reporter)
        channels_last = isinstance(config, ImageTrainingConfig) and config.channels_last
        self.model = placed(build(), self.device, channels_last=channels_last)
        self.forward = compiled(parallel(self.model, self.ranks, self.device), config.compile, self.device)
        self._optimizer = make_optimizer(self.model, self.ranks.size)
        parts: dict[str, Any] = {"model": self.model, "optimizer": self._optimizer, "precision": self.precision}
        self._schedule = make_schedule(self._optimizer) if make_schedule else None
        if self._schedule:
            parts["schedule"] = self._schedule
        self._progress = resume(config, self.ranks, self.device, parts)
        self._feed: Feed[Batch] | None = None

    def order(self, samples: int, *, drawn: bool = False) -> Order:
        """Return the order of that many samples; see `Order`."""
        order = Order(samples, self._config, self._progress, drawn=drawn)
        self._steps_to_next_epoch = order.steps_to_next_epoch
        return order

    def learn(
        self,
        loss: Callable[..., torch.Tensor],
        steps_per_epoch: int,
        batches: Iterator[Batch] | None = None,
        figures: Figures = dict,
    ) -> None:
        """Take the warm-up steps and the measured ones, and report them.

        Args:
            loss: returns the loss of a step, given the tensors of a batch.
            steps_per_epoch: steps of all ranks that make a pass over the data.
            batches: of this rank, without end; None: the loss needs none.
            figures: returns others than the loss of the latest step, in percent.
        """
        if batches is not None:
            self._feed = Feed(self._in_epochs(batches, steps_per_epoch))

        def step() -> torch.Tensor:
            batch = next(self._feed) if self._feed else ()
            with self.precision.autocast():
                value = loss(*batch)
            self.precision.update(value, self._optimizer)
            return value

        config, device, reporter = self._config, self.device, self._reporter
        self._measured = train(
            step, config, steps_per_epoch, device, reporter, self._feed, self._progress, figures=figures
        )

    def report(self, flops: StepFlops, palm: StepFlops | None = None) -> None:
        """Report the model's size, its FLOPs a step and, with batches, MFU and the least bytes a step.

        `palm` is the same by PaLM's formula; None: it is not for this model.
        """
        report_counts(self.model, flops, self._reporter)
        if self._feed is None:
            report_arithmetic(flops, self.precision.dtype, self.device, self._reporter)
            return
        report_mfu(flops, self._measured, self.precision, self.device, self._reporter, palm)
        report_minimum_bytes(self.model, self._optimizer, next(self._feed), self._reporter)

    def _in_epochs(self, batches: Iterator[Batch], steps_per_epoch: int) -> Iterator[Batch]:
        if self._schedule is None:
            yield from batches
            return
        # A restored training may begin within an epoch.
        yield from itertools.islice(batches, self._steps_to_next_epoch)
        while True:
            self._schedule.step()
            yield from itertools.islice(batches, steps_per_epoch)


def set_up(config: TrainingConfig, reporter: Reporter) -> tuple[torch.device, Precision, Ranks]:
    """Prepare torch, meet the other ranks, and report device, precision, seed and software.

    Torch's random numbers, such as those of dropout and noise, differ between ranks.

    Returns:
        The device, the precision, and the ranks that train together; all must continue to `train`, which parts them.

    Raises:
        MisuseError: the device or the precision is not available, or --ranks contradicts torchrun.
        WorkloadError: the ranks did not meet.
    """
    ranks = Ranks.from_environment()
    started = ranks.local_size if config.elastic or config.nodes > 1 else ranks.size
    if config.ranks not in (1, started):
        raise MisuseError(f"--ranks {config.ranks} contradicts torchrun, which started {started}: omit --ranks")
    torch.manual_seed(config.seed + ranks.rank)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    elif ranks.local_size > 1:
        # Ranks that each take all cores get into one another's way.
        torch.set_num_threads(max(1, torch.get_num_threads() // ranks.local_size))
    device = choose_device(config.device)
    precision = Precision(config.precision, device)
    ranks.join(device)
    report_device(device, reporter)
    precision.report(reporter)
    reporter.result("ranks", ranks.size)
    reporter.result("seed", config.seed)
    report_software(reporter)
    return device, precision, ranks
