"""The reader of images in folders of classes: tiny-imagenet-200, ImageNet, and any other tree of their layouts.

Layouts: `train/CLASS/images/*.JPEG` of tiny-imagenet-200, and `train/CLASS/*.JPEG` of ImageNet. Labels number the
classes in the order of their names.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from gpuagent_workloads.data.download import Contents, Dataset, RemoteFile
from gpuagent_workloads.errors import DataError

SUFFIXES = (".jpeg", ".jpg", ".png")

# Images that claim to have more are refused before they are decoded.
MAX_PIXELS = 1 << 24

ORIGINAL_CLASSES, ORIGINAL_IMAGES = 200, 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFiles:
    """Files of images, and their labels from 0, shape (count,)."""

    paths: Sequence[Path]
    labels: npt.NDArray[np.int64]
    # Their number.
    classes: int


def list_training_images(directory: Path) -> ImageFiles:
    """Return the files to train on. Raises DataError where there are none, or a class has none."""
    try:
        folders = sorted(path for path in (directory / "train").iterdir() if path.is_dir())
        by_class = []
        for folder in folders:
            inner = folder / "images"
            images = inner if inner.is_dir() else folder
            paths = sorted(path for path in images.iterdir() if path.suffix.lower() in SUFFIXES)
            if not paths:
                raise DataError(f"{images} has no images")
            by_class.append(paths)
    except OSError as error:
        raise DataError(
            f"cannot read {error.filename}: {error.strerror}; --data needs train/CLASS/*.JPEG or "
            f"train/CLASS/images/*.JPEG: `gpuagent prepare resnet18 --data {directory}` fetches it"
        ) from error
    if not folders:
        raise DataError(f"{directory / 'train'} has no folders of classes")
    labels = np.repeat(np.arange(len(folders)), [len(paths) for paths in by_class])
    return ImageFiles(paths=[path for paths in by_class for path in paths], labels=labels, classes=len(folders))


def check_original(directory: Path) -> None:
    """Check the number of classes and of images to train on. Raises DataError where images are missing."""
    files = list_training_images(directory)
    if (files.classes, len(files.paths)) != (ORIGINAL_CLASSES, ORIGINAL_IMAGES):
        raise DataError(
            f"{directory} has {len(files.paths)} images of {files.classes} classes, "
            f"not {ORIGINAL_IMAGES} of {ORIGINAL_CLASSES}"
        )


TINY_IMAGENET = Dataset(
    # The publisher gives no checksum. Several independent public projects pin this SHA-256; many more, such as
    # avalanche, pin an MD5, 90528d7ca1a48142e341f4ef8d21d0de, seen with the same size.
    archive=RemoteFile(
        name="tiny-imagenet-200.zip",
        size_bytes=248_100_043,
        sha256="6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
    ),
    mirrors=("https://cs231n.stanford.edu", "http://cs231n.stanford.edu", "https://image-net.org/data"),
    # Without val, test and boxes, which are not read here: on shared disks the number of files is limited.
    contents=Contents(
        pattern=re.compile(r"tiny-imagenet-200/(train/n[0-9]+/images/n[0-9_]+\.JPEG)"),
        files=ORIGINAL_IMAGES,
        max_bytes=1 << 29,
    ),
    check=check_original,
    folder="train",
)


def read_image(path: Path, side: int) -> npt.NDArray[np.uint8]:
    """Return an image as bytes, scaled to shape (side, side, 3). Raises DataError if it cannot be read or decoded."""
    try:
        with Image.open(path, formats=("JPEG", "PNG")) as image:
            if image.width * image.height > MAX_PIXELS:
                raise DataError(
                    f"{path} has {image.width} × {image.height} pixels, more than the {MAX_PIXELS} accepted"
                )
            colours = image.convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
    # Pillow raises these for damaged files: OSError (also for unknown formats), the others from its decoders.
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise DataError(f"cannot read {path} as an image: {error}") from error
    return np.asarray(colours)
