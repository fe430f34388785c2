"""One model in training, from its set-up to its figures: what all training workloads do alike.

The set-up covers seeds, threads, device, ranks, precision, and a record of the installed software.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import ImageTrainingConfig, TrainingConfig
from gpuagent_workloads.training.device import choose_device, report_device, report_software, upload
from gpuagent_workloads.training.images import placed
from gpuagent_workloads.training.loop import Feed, Figures, train
from gpuagent_workloads.training.model import (
    StepFlops,
    compiled,
    report_arithmetic,
    report_counts,
    report_mfu,
    report_minimum_bytes,
)
from gpuagent_workloads.training.precision import Precision
from gpuagent_workloads.training.progress import Progress, resume
from gpuagent_workloads.training.ranks import Ranks, parallel

_DRAWN_AT_ONCE = 1 << 16


class Order:
    """An endless sequence of batches as positions of samples; each rank gets its share of every global batch.

    The seed alone decides the order: one epoch follows the other without a gap, each shuffled anew. A global batch is
    the next `batch_size` samples for each rank: rank 0 takes the first, rank 1 the next, …. So the same global batches
    come in the same order whether one rank takes 64 samples at a time or two take 32.

    It can be pickled, as data loaders do, and iterated more than once.
    """

    def __init__(self, samples: int, config: TrainingConfig, progress: Progress, *, drawn: bool = False) -> None:
        """Make the order.

        Args:
            config: for the seed, and the batch size of a rank.
            progress: for the number of this rank, and of the samples trained on before.
            drawn: draw each position from all, with repetition, instead of shuffling.

        Raises:
            MisuseError: a global batch is larger than the data, and positions are not drawn.
        """
        ranks = progress.ranks
        self._samples, self._seed, self._drawn = samples, config.seed, drawn
        self._batch_size, self._rank = config.batch_size, ranks.rank
        self._global_batch = config.batch_size * ranks.size
        self._start = progress.position.samples
        if self._global_batch > samples and not drawn:
            on_ranks = f" on {ranks.size} ranks" if ranks.size > 1 else ""
            raise MisuseError(f"--batch-size {config.batch_size}{on_ranks} is more than the {samples} training samples")
        # Whole steps of all ranks in a pass over the data; the remainder belongs to the next step.
        self.steps_per_epoch = max(1, samples // (config.samples_per_step * ranks.size))
        done = self._start // (config.samples_per_step * ranks.size)
        # Steps from here on that complete a pass over the data.
        self.steps_to_next_epoch = self.steps_per_epoch - done % self.steps_per_epoch

    def __iter__(self) -> Iterator[list[int]]:
        mine = slice(self._rank * self._batch_size, (self._rank + 1) * self._batch_size)
        block, taken = divmod(self._start, _DRAWN_AT_ONCE if self._drawn else self._samples)
        waiting = self._block(block)[taken:]
        while True:
            while len(waiting) < self._global_batch:
                block += 1
                waiting = np.concatenate([waiting, self._block(block)])
            yield waiting[mine].tolist()
            waiting = waiting[self._global_batch :]

    def _block(self, number: int) -> npt.NDArray[np.int64]:
        """Return the positions of an epoch, or a block of drawn ones."""
        random = np.random.default_rng([self._seed, number])
        return random.integers(0, self._samples, _DRAWN_AT_ONCE) if self._drawn else random.permutation(self._samples)


def batches_in(
    order: Order, values: npt.NDArray[Any], labels: npt.NDArray[Any], device: torch.device
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield one batch of this rank after the other, picked on the host and copied to the device."""
    for chosen in order:
        yield upload(values[chosen], device), upload(labels[chosen], device)


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
