"""Labelled images in memory, read or synthetic."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Coloured cells on each side of a synthetic image.
_CELLS = 4


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
