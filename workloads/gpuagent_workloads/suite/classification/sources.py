"""Sources of a classification workload's images: synthetic and kept on the device, or decoded from files."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.data.images import make_images
from gpuagent_workloads.data.tiny_imagenet import ImageFiles, list_training_images, read_image
from gpuagent_workloads.errors import DataError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.classification import ClassificationConfig
from gpuagent_workloads.training.config import SYNTHETIC
from gpuagent_workloads.training.device import upload
from gpuagent_workloads.training.images import Batch
from gpuagent_workloads.training.session import Order

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
    return DecodedImages(config, files, workers)


class SyntheticImages:
    """Images made on the host before training and copied to the device once: a step spends no time on its input."""

    def __init__(self, config: ClassificationConfig) -> None:
        count = max(SYNTHETIC_IMAGES, config.batch_size)
        random = np.random.default_rng(config.seed)
        self._data = make_images(count, config.classes, config.image_size, random)

    def __len__(self) -> int:
        return len(self._data.labels)

    def batches(self, order: Order, device: torch.device) -> Iterator[Batch]:
        """Yield endless batches, picked on the device: images (batch, side, side, 3), and labels."""
        images = torch.from_numpy(self._data.images).to(device)
        labels = torch.from_numpy(self._data.labels).to(device)
        for chosen in order:
            positions = upload(np.array(chosen), device)
            yield images[positions], labels[positions]


class DecodedImages:
    """Images decoded and scaled by processes beside the training, up to two batches each ahead of it."""

    def __init__(self, config: ClassificationConfig, files: ImageFiles, workers: int) -> None:
        self._config, self._files, self._workers = config, files, workers

    def __len__(self) -> int:
        return len(self._files.paths)

    def batches(self, order: Order, device: torch.device) -> Iterator[Batch]:
        """Yield endless batches as they are ready: images (batch, side, side, 3), and labels.

        Raises DataError: a file cannot be decoded.
        """
        loader: DataLoader[Batch | DataError] = DataLoader(
            _Decoder(self._files, self._config.image_size),
            batch_size=None,
            sampler=order,
            num_workers=self._workers,
            pin_memory=device.type == "cuda",
        )
        for batch in loader:
            if isinstance(batch, DataError):
                raise batch
            images, labels = batch
            yield images.to(device, non_blocking=True), labels.to(device, non_blocking=True)


class _Decoder(Dataset["Batch | DataError"]):
    """A map from the positions of a batch's files to its images and labels."""

    def __init__(self, files: ImageFiles, side: int) -> None:
        self._files, self._side = files, side

    def __getitem__(self, chosen: list[int]) -> Batch | DataError:
        try:
            images = np.stack([read_image(self._files.paths[position], self._side) for position in chosen])
        except DataError as error:
            # Returned, since raised here it would arrive wrapped in this process's traceback.
            return error
        return torch.from_numpy(images), torch.from_numpy(self._files.labels[chosen])
