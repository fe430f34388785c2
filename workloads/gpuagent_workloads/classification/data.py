"""What the image classification workloads have in common to prepare."""

from collections.abc import Sequence
from pathlib import Path

# Fetched once for all of them.
DATASET = "tiny-imagenet-200"


def prepare(directory: Path, mirrors: Sequence[str]) -> None:
    """Fetch tiny-imagenet-200 and unpack the images to train on.

    Raises:
        DataError: no mirror has it as it must be, or there is no room for it.
    """
    from gpuagent_workloads.data.dataset import prepare_dataset
    from gpuagent_workloads.data.tiny_imagenet import TINY_IMAGENET

    prepare_dataset(TINY_IMAGENET, directory, mirrors)
