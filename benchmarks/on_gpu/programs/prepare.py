"""Random data for the programs of programs.sh, in the formats that they read.

Sizes decide the numbers of steps: 25,600 digits are 400 batches of 64. numpy and Pillow come with torchvision.
"""

from __future__ import annotations

import argparse
import os
import pickle
from pathlib import Path

import numpy
from PIL import Image

SEED = 1
TRAIN_DIGITS, TEST_DIGITS = 25_600, 1_000
TOKENS, CHARACTERS = {"train": 1_000_000, "val": 100_000}, 65
CLASSES, PICTURES = 8, {"train": 5_120, "val": 256}
SIDE = 256


def write_idx(path: Path, array: numpy.ndarray) -> None:
    """Write unsigned bytes in the format of MNIST: two zeros, type 8, the dimensions and their lengths, the data."""
    lengths = b"".join(length.to_bytes(4, "big") for length in array.shape)
    path.write_bytes(bytes([0, 0, 8, array.ndim]) + lengths + array.tobytes())


def write_mnist(folder: Path, random: numpy.random.Generator, share: float) -> None:
    """Write images and labels of random digits where torchvision's MNIST looks for them."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, count in (("train", TRAIN_DIGITS), ("t10k", TEST_DIGITS)):
        count = int(count * share)  # noqa: PLW2901
        write_idx(folder / f"{kind}-images-idx3-ubyte", random.integers(0, 256, (count, 28, 28), numpy.uint8))
        write_idx(folder / f"{kind}-labels-idx1-ubyte", random.integers(0, 10, count, numpy.uint8))


def write_shakespeare(folder: Path, random: numpy.random.Generator) -> None:
    """Write random characters as nanoGPT's data/shakespeare_char/prepare.py would."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in TOKENS.items():
        random.integers(0, CHARACTERS, count, numpy.uint16).tofile(folder / f"{split}.bin")
    (folder / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": CHARACTERS}))


def write_pictures(folder: Path, random: numpy.random.Generator, share: float) -> None:
    """Write JPEG files in folders of classes: one picture a class, and links to it."""
    for split, count in PICTURES.items():
        for number in range(CLASSES):
            (at := folder / split / f"class{number}").mkdir(parents=True, exist_ok=True)
            rough = Image.fromarray(random.integers(0, 256, (SIDE // 8, SIDE // 8, 3), numpy.uint8))
            rough.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(at / "0.jpg", quality=90)
            for copy in range(1, int(count * share) // CLASSES):
                (at / f"{copy}.jpg").unlink(missing_ok=True)
                os.link(at / "0.jpg", at / f"{copy}.jpg")


def main() -> None:
    """Write all data into the folder that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--share", type=float, default=1.0, help="of the digits and pictures")
    args = parser.parse_args()
    random = numpy.random.default_rng(SEED)
    write_mnist(args.folder / "data/MNIST/raw", random, args.share)
    write_shakespeare(args.folder / "nanogpt/data/shakespeare_char", random)
    write_pictures(args.folder / "imagenet/pictures", random, args.share)


if __name__ == "__main__":
    main()
