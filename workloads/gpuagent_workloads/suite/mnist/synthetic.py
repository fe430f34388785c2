"""Synthetic digits of MNIST's shape: a coarse glyph at a random place and brightness, in noise.

A network can learn to distinguish them, which its accuracy shows.
"""

import numpy as np
import numpy.typing as npt

# Pixels on each side of an image, as in MNIST.
SIDE = 28

# Pixels of the image for each of the glyph's.
_SCALE = 3

# 5 × 7 glyphs, a string for each row.
_GLYPHS = (
    (".###.", "#...#", "#..##", "#.#.#", "##..#", "#...#", ".###."),
    ("..#..", ".##..", "..#..", "..#..", "..#..", "..#..", ".###."),
    (".###.", "#...#", "....#", "...#.", "..#..", ".#...", "#####"),
    (".###.", "#...#", "....#", "..##.", "....#", "#...#", ".###."),
    ("...#.", "..##.", ".#.#.", "#..#.", "#####", "...#.", "...#."),
    ("#####", "#....", "####.", "....#", "....#", "#...#", ".###."),
    ("..##.", ".#...", "#....", "####.", "#...#", "#...#", ".###."),
    ("#####", "....#", "...#.", "..#..", ".#...", ".#...", ".#..."),
    (".###.", "#...#", "#...#", ".###.", "#...#", "#...#", ".###."),
    (".###.", "#...#", "#...#", ".####", "....#", "...#.", ".##.."),
)


def make_digits(count: int, random: np.random.Generator) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return images, shape (count, 28, 28), and labels 0–9, shape (count,)."""
    small = np.array([[[dot == "#" for dot in row] for row in glyph] for glyph in _GLYPHS], dtype=np.uint8)
    glyphs = small.repeat(_SCALE, axis=1).repeat(_SCALE, axis=2)
    labels = random.integers(0, len(glyphs), count, dtype=np.uint8)
    inked = random.random((count, *glyphs.shape[1:]), dtype=np.float32) < 0.8
    brightness = random.integers(96, 256, (count, 1, 1), dtype=np.uint8)
    images = random.integers(0, 96, (count, SIDE, SIDE), dtype=np.uint8)
    _, height, width = glyphs.shape
    tops = random.integers(0, SIDE - height + 1, count)
    lefts = random.integers(0, SIDE - width + 1, count)
    strokes = glyphs[labels] * inked * brightness
    for image, stroke, top, left in zip(images, strokes, tops, lefts, strict=True):
        place = image[top : top + height, left : left + width]
        np.maximum(place, stroke, out=place)
    return images, labels
