import dataclasses
import functools
import hashlib
import io
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gpuagent_workloads.data import cifar, cora, tiny_imagenet
from gpuagent_workloads.data.cifar import CIFAR10, ORIGINAL_FILES, read_cifar10
from gpuagent_workloads.data.cora import ORIGINAL_FIGURES, CitationGraph, figures, read_cora
from gpuagent_workloads.data.download import Contents, Dataset, RemoteFile
from gpuagent_workloads.data.tiny_imagenet import TINY_IMAGENET, list_training_images, read_image
from gpuagent_workloads.errors import DataError
from gpuagent_workloads.registry import WORKLOADS, find
from gpuagent_workloads.suite.gcn.train import make_graph
from gpuagent_workloads.suite.sentiment import data as sentiment
from tests.support.servers import LIMIT_SECONDS, without_waits
from tests.unit.workloads.archives import Named, gzipped_tar, served, zipped
from tests.unit.workloads.runs import environment_with, run_workloads

pytestmark = pytest.mark.slow


def remote(name: str, content: bytes) -> RemoteFile:
    return RemoteFile(name=name, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def check_two(directory: Path) -> None:
    if not all((directory / name).is_file() for name in ("one", "two")):
        raise DataError("one or two is missing")


ARCHIVE = gzipped_tar([("two/one", b"1"), ("two/two", b"2")])

TWO = Dataset(
    archive=remote("two.tar.gz", ARCHIVE),
    mirrors=("http://127.0.0.1:1",),
    contents=Contents(pattern=re.compile("two/(one|two)"), files=2, max_bytes=2),
    check=check_two,
)


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_a_dataset_is_unpacked_and_its_archive_is_gone(tmp_path: Path) -> None:
    with served({"two.tar.gz": ARCHIVE}) as (url, _asked):
        TWO.prepare(tmp_path / "new", [url])
    assert names(tmp_path / "new") == {"one", "two"}


def test_an_archive_that_an_earlier_attempt_fetched_is_used(tmp_path: Path) -> None:
    (tmp_path / "two.tar.gz").write_bytes(ARCHIVE)
    TWO.prepare(tmp_path, [])
    assert names(tmp_path) == {"one", "two"}


@pytest.mark.parametrize(
    ("archive", "complaint"),
    [
        (b"no archive", "damaged archive"),
        (gzipped_tar([("two/one", b"1")]), "1 of the 2 expected files"),
        (gzipped_tar([("two/one", b"1"), ("two/two", b"22")]), "larger"),
    ],
)
def test_an_archive_that_is_not_as_it_must_be_leaves_nothing(tmp_path: Path, archive: bytes, complaint: str) -> None:
    unchecked = dataclasses.replace(TWO, archive=RemoteFile(name="two.tar.gz", size_bytes=None, sha256=None))
    with served({"two.tar.gz": archive}) as (url, _asked), pytest.raises(DataError, match=complaint):
        unchecked.prepare(tmp_path, [url])
    assert names(tmp_path) == set()


def test_a_folder_in_the_way_is_refused_before_anything_is_fetched(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    with pytest.raises(DataError, match=r"train is in the way \(one or two is missing\)"):
        dataclasses.replace(TWO, folder="train").prepare(tmp_path, [])


@functools.cache
def cora_archive() -> bytes:
    """A graph with all figures of the original Cora, in its format."""
    graph = make_graph(np.random.default_rng(1))
    counts = ORIGINAL_FIGURES["papers by subject"]
    assert isinstance(counts, list)
    subjects = np.repeat(np.arange(7), counts)
    papers = ("\t".join([f"p{n}", *map(str, words), f"S{subjects[n]}"]) for n, words in enumerate(graph.words.tolist()))
    # Some papers cite each other.
    citations = np.concatenate([graph.citations, graph.citations[: 5429 - 5278, ::-1]])
    cites = (f"p{cited}\tp{citing}" for cited, citing in citations)
    texts = {"cora.content": papers, "cora.cites": cites}
    files = [(f"cora/{name}", "".join(f"{line}\n" for line in lines).encode()) for name, lines in texts.items()]
    return gzipped_tar([("cora/README", b"This directory contains ..."), *files])


def gpuagent_command(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).with_name("gpuagent")), *arguments]


def gpuagent(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = gpuagent_command(*arguments)
    done = subprocess.run(command, capture_output=True, text=True, env=environment_with(**environment), check=False)
    done.stderr = without_waits(done.stderr)
    return done


def test_gpuagent_prepare_fetches_once_and_the_workload_runs_on_it(tmp_path: Path) -> None:
    with served({"cora.tgz": cora_archive()}) as (url, asked):
        first = gpuagent("prepare", "gcn", "--mirror", url, XDG_CACHE_HOME=str(tmp_path))
        second = gpuagent("prepare", "gcn", "--mirror", url, XDG_CACHE_HOME=str(tmp_path))
    directory = tmp_path / "gpuagent" / "cora"
    assert (first.returncode, first.stdout) == (0, f"Ready. To use it: gpuagent run gcn --data {directory}\n")
    assert first.stderr == f"fetching {url}/cora.tgz\nunpacking cora.tgz\n"
    assert names(directory) == {"cora.content", "cora.cites"}
    assert (second.returncode, second.stderr) == (0, f"{directory} holds it already\n")
    assert asked == ["cora.tgz"]
    assert figures(read_cora(directory)) == ORIGINAL_FIGURES
    done = run_workloads("run", "gcn", "--data", str(directory), "--device", "cpu", "--steps", "2")
    assert done.returncode == 0, done.stderr


def test_another_graph_in_cora_s_place_is_refused(tmp_path: Path) -> None:
    papers = b"a\t1\t0\tx\nb\t0\t1\ty\n"
    archive = gzipped_tar([("cora/cora.content", papers), ("cora/cora.cites", b"a\tb\n")])
    with served({"cora.tgz": archive}) as (url, _asked):
        done = gpuagent("prepare", "gcn", "--mirror", url, "--data", str(tmp_path))
    assert done.returncode == 1
    assert "is not Cora: papers: 2, not 2708" in done.stderr
    assert names(tmp_path) == set()


def test_pairs_that_cite_each_other_count_once() -> None:
    graph = CitationGraph(
        words=np.array([[1, 0], [1, 1]], np.uint8), subjects=np.array([1, 0]), citations=np.array([[0, 1], [1, 0]])
    )
    assert list(figures(graph).values()) == [2, 2, 3, [1, 1], 2, 1]


def test_cifar10_is_prepared_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = bytes([7]) + bytes(range(256)) * 12
    files: list[Named] = [(f"cifar-10-batches-bin/{name}", record * 10) for name in ORIGINAL_FILES]
    others = [("cifar-10-batches-bin/batches.meta.txt", b"airplane\n"), ("cifar-10-batches-bin/readme.html", b"<html>")]
    archive = gzipped_tar([*others, *files])
    monkeypatch.setattr(cifar, "ORIGINAL_FILE_BYTES", len(record) * 10)
    monkeypatch.setattr(cifar, "CIFAR10", dataclasses.replace(CIFAR10, archive=remote(CIFAR10.archive.name, archive)))
    prepare_from("cifar10", {CIFAR10.archive.name: archive}, tmp_path)
    assert names(tmp_path) == set(ORIGINAL_FILES)
    train, test = read_cifar10(tmp_path)
    assert (len(train.labels), len(test.labels)) == (50, 10)
    (tmp_path / "test_batch.bin").write_bytes(record)
    with pytest.raises(DataError, match="cannot fetch"):
        prepare_from("cifar10", {}, tmp_path)


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "alexnet", "vgg16"])
def test_tiny_imagenet_is_prepared_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    colours, grey = jpeg("RGB"), jpeg("L")
    train = [
        (f"tiny-imagenet-200/train/{wnid}/images/{wnid}_{n}.JPEG", image)
        for wnid in ("n01443537", "n12267677")
        for n, image in enumerate((colours, grey))
    ]
    others = [
        ("tiny-imagenet-200/wnids.txt", b"n01443537\nn12267677\n"),
        ("tiny-imagenet-200/train/", b""),
        ("tiny-imagenet-200/train/n01443537/n01443537_boxes.txt", b"n01443537_0.JPEG\t0\t10\t63\t58\n"),
        ("tiny-imagenet-200/val/images/val_0.JPEG", colours),
        ("tiny-imagenet-200/val/val_annotations.txt", b"val_0.JPEG\tn01443537\t0\t32\t44\t62\n"),
    ]
    archive = zipped([*others, *train])
    small = dataclasses.replace(
        TINY_IMAGENET,
        archive=remote("tiny-imagenet-200.zip", archive),
        contents=dataclasses.replace(TINY_IMAGENET.contents, files=4),
    )
    monkeypatch.setattr(tiny_imagenet, "TINY_IMAGENET", small)
    monkeypatch.setattr(tiny_imagenet, "ORIGINAL_CLASSES", 2)
    monkeypatch.setattr(tiny_imagenet, "ORIGINAL_IMAGES", 4)
    prepare_from(name, {"tiny-imagenet-200.zip": archive}, tmp_path)
    assert names(tmp_path) == {"train"}
    files = list_training_images(tmp_path)
    assert files.labels.tolist() == [0, 0, 1, 1]
    assert {read_image(path, 64).shape for path in files.paths} == {(64, 64, 3)}


def test_reviews_are_converted_once_and_their_archive_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [(f"aclImdb/{part}/{kind}/0_9.txt", b"A film.") for part in ("train", "test") for kind in ("pos", "neg")]
    archive = gzipped_tar(files)
    monkeypatch.setattr(sentiment, "ARCHIVE", remote("aclImdb_v1.tar.gz", archive))
    prepare_from("sentiment", {"aclImdb_v1.tar.gz": archive}, tmp_path)
    prepare_from("sentiment", {}, tmp_path)
    assert names(tmp_path) == {"train.tsv", "test.tsv"}


def prepare_from(name: str, files: dict[str, bytes], directory: Path) -> None:
    """Prepare a workload from a mirror that holds these files."""
    with served(files) as (url, _asked):
        find(name).prepare(directory, [url])


def jpeg(mode: str) -> bytes:
    stream = io.BytesIO()
    Image.new(mode, (64, 64), 200 if mode == "L" else (1, 2, 3)).save(stream, "JPEG")
    return stream.getvalue()


def test_each_published_dataset_is_pinned_by_size_and_sha_256_except_cora() -> None:
    for dataset in (CIFAR10, TINY_IMAGENET):
        assert dataset.archive.size_bytes
        assert re.fullmatch("[0-9a-f]{64}", dataset.archive.sha256 or "")
    assert cora.CORA.archive.sha256 is None


def test_every_workload_that_can_be_prepared_says_so() -> None:
    for workload in WORKLOADS:
        assert (workload.preparation is not None) == (f"prepare {workload.name} fetches" in workload.data)


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["mnits"], 2, "did you mean 'mnist'?"),
        ([], 2, "WORKLOAD is missing"),
        (["mnist", "--mirror", "ftp://localhost"], 2, "http or https URL"),
        (["mnist", "--mirror", "http://127.0.0.1:1"], 1, "cannot fetch train-images-idx3-ubyte.gz"),
        (["mnist", "--python", "/nowhere/python"], 1, "choose another with --python"),
        (["mnist", "--data", "/dev/null/mnist"], 1, "cannot write /dev/null/mnist"),
    ],
)
def test_what_prepare_cannot_do_it_says(tmp_path: Path, arguments: Sequence[str], code: int, complaint: str) -> None:
    done = gpuagent("prepare", *arguments, XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == code
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_a_download_with_130_and_what_has_come_stays(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # Its program may end before it asks for anything.
        listener.settimeout(LIMIT_SECONDS)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        command = gpuagent_command("prepare", "cifar10", "--mirror", url, "--data", str(tmp_path))
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment_with()) as process:
            connection, _address = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 170052171\r\n\r\n" + b"x" * (1 << 21))
                assert process.stderr
                assert "(170.1 MB)" in process.stderr.readline()
                process.send_signal(signal.SIGINT)
                assert process.wait() == 130
                assert "Traceback" not in process.stderr.read()
    assert names(tmp_path) == {"cifar-10-binary.tar.gz.part"}


def test_on_a_terminal_a_bar_shows_how_far_it_is(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with served({"cora.tgz": cora_archive()}) as (url, _asked):
        command = gpuagent_command("prepare", "gcn", "--mirror", url, "--data", str(tmp_path))
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=theirs, env=environment_with(TERM="xterm")
        ) as process:
            os.close(theirs)
            shown = b""
            try:
                while chunk := os.read(ours, 4096):
                    shown += chunk
            except OSError:
                # What Linux answers when the other side of a terminal was closed.
                pass
        os.close(ours)
    assert process.returncode == 0
    assert shown.count(b"100%") >= 2
