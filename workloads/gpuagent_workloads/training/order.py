"""The order of the training data: one for all ranks, whatever their number."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.training.config import TrainingConfig
from gpuagent_workloads.training.device import upload
from gpuagent_workloads.training.progress import Progress

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
