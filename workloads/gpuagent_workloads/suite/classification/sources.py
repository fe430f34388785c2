"""Sources of a classification workload's images: synthetic and kept on the device, or decoded from files."""

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.data.images import Frame, centre, make_images, random_part, whole
from gpuagent_workloads.data.tiny_imagenet import ImageFiles, list_test_images, list_training_images, read_image
from gpuagent_workloads.errors import DataError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.classification import ClassificationConfig
from gpuagent_workloads.training.config import SYNTHETIC
from gpuagent_workloads.training.device import upload
from gpuagent_workloads.training.images import Batch
from gpuagent_workloads.training.order import Order

# At least one batch, and at least this many.
SYNTHETIC_IMAGES = 1024

# By default; beyond that memory runs out sooner than CPUs.
MAX_WORKERS = 16


def open_source(config: ClassificationConfig, reporter: Reporter) -> "SyntheticImages | DecodedImages":
    """Return the images that `config` asks for, and report their source.

    Raises:
        DataError: the files cannot be used.
        MisuseError: the network has fewer classes than the files.
    """
    if config.data == SYNTHETIC:
        reporter.result("data_source", f"synthetic images, made from seed {config.seed}, kept on the device")
        return SyntheticImages(config)
    files = list_training_images(Path(config.data))
    if files.classes > config.classes:
        raise MisuseError(f"--classes {config.classes} is less than the {files.classes} classes of {config.data}")
    workers = min(len(os.sched_getaffinity(0)), MAX_WORKERS) if config.workers is None else config.workers
    reporter.result("data_source", f"{len(files.paths)} image files of {files.classes} classes in {config.data}")
    reporter.result("workers", workers)
    test_files = list_test_images(Path(config.data), files.names) if config.test_images else None
    return DecodedImages(config, files, test_files, workers)


class SyntheticImages:
    """Images made on the host before training and copied to the device once: a step spends no time on its input."""

    def __init__(self, config: ClassificationConfig) -> None:
        count = max(SYNTHETIC_IMAGES, config.batch_size)
        random = np.random.default_rng(config.seed)
        images = make_images(count + (config.test_images or 0), config.classes, config.image_size, random)
        self._data, self._test_data = images.split(count)
        self._batch_size = config.batch_size

    def __len__(self) -> int:
        return len(self._data.labels)

    def batches(self, order: Order, device: torch.device) -> Iterator[Batch]:
        """Yield endless batches, picked on the device: images (batch, side, side, 3), and labels."""
        images = torch.from_numpy(self._data.images).to(device)
        labels = torch.from_numpy(self._data.labels).to(device)
        for chosen in order:
            positions = upload(np.array(chosen), device)
            yield images[positions], labels[positions]

    def test_batches(self, device: torch.device) -> Iterator[Batch]:
        """Yield the images to test on."""
        images, labels = torch.from_numpy(self._test_data.images), torch.from_numpy(self._test_data.labels)
        for some, their_labels in zip(images.split(self._batch_size), labels.split(self._batch_size), strict=True):
            yield some.to(device), their_labels.to(device)


class DecodedImages:
    """Images decoded and scaled by processes beside the training, up to two batches each ahead of it."""

    def __init__(
        self, config: ClassificationConfig, files: ImageFiles, test_files: ImageFiles | None, workers: int
    ) -> None:
        self._config, self._files, self._test_files, self._workers = config, files, test_files, workers

    def __len__(self) -> int:
        return len(self._files.paths)

    def batches(self, order: Order, device: torch.device) -> Iterator[Batch]:
        """Yield endless batches as they are ready: images (batch, side, side, 3), and labels.

        Raises:
            DataError: a file cannot be decoded.
        """
        yield from self._decoded(self._files, _Numbered(order), device, augment=True)

    def test_batches(self, device: torch.device) -> Iterator[Batch]:
        """Yield the images to test on, drawn from all by the seed.

        Raises:
            DataError: a file cannot be decoded.
        """
        if self._test_files is None:
            return
        random = np.random.default_rng(self._config.seed)
        chosen = random.permutation(len(self._test_files.paths))[: self._config.test_images].tolist()
        size = self._config.batch_size
        batches = [(number, chosen[number : number + size]) for number in range(0, len(chosen), size)]
        yield from self._decoded(self._test_files, batches, device, augment=False)

    def _decoded(
        self, files: ImageFiles, batches: Iterable[tuple[int, list[int]]], device: torch.device, *, augment: bool
    ) -> Iterator[Batch]:
        loader: DataLoader[Batch | DataError] = DataLoader(
            _Decoder(files, self._config, augment=augment),
            batch_size=None,
            sampler=batches,
            num_workers=self._workers,
            pin_memory=device.type == "cuda",
        )
        for batch in loader:
            if isinstance(batch, DataError):
                raise batch
            images, labels = batch
            yield images.to(device, non_blocking=True), labels.to(device, non_blocking=True)


class _Decoder(Dataset["Batch | DataError"]):
    """A map from a batch's number, and the positions of its files, to its images and labels."""

    def __init__(self, files: ImageFiles, config: ClassificationConfig, *, augment: bool) -> None:
        self._files, self._config, self._augment = files, config, augment

    def __getitem__(self, batch: tuple[int, list[int]]) -> Batch | DataError:
        number, chosen = batch
        # The same images whatever the number of workers, and others for each rank, since its positions are others.
        random = np.random.default_rng([self._config.seed, number, *chosen[:1]])
        try:
            images = np.stack([self._read(self._files.paths[position], random) for position in chosen])
        except DataError as error:
            # Returned, since raised here it would arrive wrapped in this process's traceback.
            return error
        return torch.from_numpy(images), torch.from_numpy(self._files.labels[chosen])

    def _read(self, path: Path, random: np.random.Generator) -> npt.NDArray[np.uint8]:
        frame: Frame = whole
        if self._config.crop:
            frame = partial(random_part, random=random) if self._augment else centre
        image = read_image(path, self._config.image_size, frame)
        return image[:, ::-1] if self._augment and self._config.flip and random.random() < 0.5 else image


class _Numbered:
    """An order with the number of each batch. It can be pickled, and iterated more than once."""

    def __init__(self, order: Order) -> None:
        self._order = order

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        return enumerate(self._order)
