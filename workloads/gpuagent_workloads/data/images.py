"""Labelled images in memory, read or synthetic, and frames: the part of an image that a network's input shows."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Coloured cells on each side of a synthetic image.
_CELLS = 4

# Left, top, right and bottom, in pixels and their fractions.
Box = tuple[float, float, float, float]

# From width and height.
Frame = Callable[[int, int], Box]

# Of ImageNet's training: share of the image's area, and width by height.
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)

# Of ImageNet's test: 224 of 256 pixels of the shorter side.
CENTRE = 224 / 256

_ATTEMPTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledImages:
    """Images, shape (count, height, width) or (count, height, width, 3), and labels from 0, shape (count,)."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.integer]

    def split(self, position: int) -> tuple["LabelledImages", "LabelledImages"]:
        """Return the images before `position` and those from there on."""
        before = LabelledImages(images=self.images[:position], labels=self.labels[:position])
        return before, LabelledImages(images=self.images[position:], labels=self.labels[position:])


def make_images(count: int, classes: int, side: int, random: np.random.Generator) -> LabelledImages:
    """Return `count` colour images of `side` × `side` pixels: each class has its own coarse pattern, in noise.

    A network can learn to distinguish them, so its loss and accuracy mean something, though not the same as on
    photographs.
    """
    patterns = random.integers(0, 128, (classes, _CELLS, _CELLS, 3), dtype=np.uint8)
    labels = random.integers(0, classes, count)
    cells = np.arange(side) * _CELLS // side
    images = random.integers(0, 128, (count, side, side, 3), dtype=np.uint8)
    images += patterns[labels][:, cells][:, :, cells]
    return LabelledImages(images=images, labels=labels)


def whole(width: int, height: int) -> Box:
    """Return the whole image, whatever its ratio."""
    return 0.0, 0.0, float(width), float(height)


def centre(width: int, height: int) -> Box:
    """Return the square in the middle with seven eighths of the shorter side, as for tests of ImageNet's networks."""
    side = CENTRE * min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def random_part(width: int, height: int, random: np.random.Generator) -> Box:
    """Return a random part as ImageNet's training takes it: 8 to 100 % of the area, a ratio of 3:4 to 4:3.

    Where ten draws do not fit into the image, it is the largest part in the middle with the nearest such ratio.
    """
    for _ in range(_ATTEMPTS):
        area = width * height * random.uniform(*AREA)
        # The logarithm is uniform, so that a ratio is as likely as its inverse.
        ratio = math.exp(random.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        part_width, part_height = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if part_width <= width and part_height <= height:
            left, top = random.uniform(0, width - part_width), random.uniform(0, height - part_height)
            return left, top, min(left + part_width, width), min(top + part_height, height)
    ratio = min(max(width / height, RATIO[0]), RATIO[1])
    part_width, part_height = min(width, height * ratio), min(height, width / ratio)
    left, top = (width - part_width) / 2, (height - part_height) / 2
    return left, top, left + part_width, top + part_height
