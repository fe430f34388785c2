"""Files of data sets: IDX, CIFAR-10, Cora, reviews, images, archives; the first byte says which."""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from gpuagent_workloads.data.cifar import parse_binary
from gpuagent_workloads.data.cora import figures, read_cora
from gpuagent_workloads.data.download import Contents, unpack
from gpuagent_workloads.data.tiny_imagenet import read_image
from gpuagent_workloads.errors import DataError
from gpuagent_workloads.suite.mnist.data import read_idx
from gpuagent_workloads.suite.sentiment.data import convert_archive, read_reviews
from tests.fuzz.tally import Attempt

TOKENS = (
    b"\x00\x00\x08\x03|\x00\x00\x00\x1c|\x1f\x8b\x08|\t|0\t1\t|pos\t|neg\t|\r\n|\x89PNG\r\n\x1a\n|IHDR|IDAT|"
    b"\xff\xd8\xff\xe0|\xff\xc0|aclImdb/train/pos/0_9.txt|ustar|PK\x03\x04|PK\x01\x02|set/a.bin"
).split(b"|")
_FILE = "file"
_CONTENTS = Contents(pattern=re.compile(r"set/([ab]\.bin)"), files=2, max_bytes=100)


@contextmanager
def opened(folder: Path) -> Iterator[Attempt]:
    """Write an input where its reader looks, and read it."""

    def attempt(data: bytes) -> None:
        read = _READERS[data[0] % len(_READERS)] if data else _idx_images
        with suppress(DataError):
            read(folder, data[1:])

    yield attempt


def _idx_images(folder: Path, content: bytes) -> None:
    (folder / _FILE).write_bytes(content)
    images = read_idx(folder / _FILE, (2, 3))
    assert images.shape[1:] == (2, 3) and len(images)


def _idx_labels(folder: Path, content: bytes) -> None:
    (folder / _FILE).write_bytes(content)
    assert read_idx(folder / _FILE, ()).ndim == 1


def _cifar_binary(folder: Path, content: bytes) -> None:
    assert len(parse_binary(content, folder))


def _cora(folder: Path, content: bytes) -> None:
    papers, _, citations = content.partition(b"\n\n")
    (folder / "cora.content").write_bytes(papers + b"\n")
    (folder / "cora.cites").write_bytes(citations)
    assert figures(read_cora(folder))["papers"]


def _reviews(folder: Path, content: bytes) -> None:
    (folder / "train.tsv").write_bytes(content)
    for review in read_reviews(folder, "train"):
        assert review.label in (0, 1)


def _archive(folder: Path, content: bytes) -> None:
    (folder / _FILE).write_bytes(content)
    (folder / "made").mkdir(exist_ok=True)
    convert_archive(folder / _FILE, folder / "made")


def _unpack(name: str, folder: Path, content: bytes) -> None:
    archive = folder / name
    archive.write_bytes(content)
    place = archive.parent / "unpacked"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    unpack(archive, _CONTENTS, place)
    assert {path.name for path in place.rglob("*")} == {"a.bin", "b.bin"}


def _image(folder: Path, content: bytes) -> None:
    (folder / _FILE).write_bytes(content)
    assert read_image(folder / _FILE, 8).shape == (8, 8, 3)


# By the first byte modulo their number: `c` is the first, `d` the second.
_READERS: tuple[Callable[[Path, bytes], None], ...] = (
    *(_archive, _idx_images, _idx_labels, _cifar_binary, _cora, _reviews, _image),
    *(partial(_unpack, "set.zip"), partial(_unpack, "set.tar.gz")),
)
