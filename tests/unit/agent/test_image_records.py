"""Records of images: by identity, not by name."""

import os
import time
from dataclasses import replace
from pathlib import Path

from gpuagent.environments import Image
from gpuagent.images.records import Durations, ImageRecords
from gpuagent.runs.execution import process_start_unix_nano

IMAGE = Image(name="workloads", digest="sha256:1", architecture="x86_64", size_bytes=10, layers=2)


def test_times_of_one_image_are_kept_together(tmp_path: Path) -> None:
    records = ImageRecords(tmp_path / "images")
    records.add("docker", IMAGE, Durations(build_seconds=199.7))
    assert records.add("docker", IMAGE, Durations(push_seconds=60)) == Durations(build_seconds=199.7, push_seconds=60)
    assert records.find("docker", replace(IMAGE, name="another")) == Durations(build_seconds=199.7, push_seconds=60)


def test_another_image_of_the_same_name_and_another_runtime_have_no_record(tmp_path: Path) -> None:
    records = ImageRecords(tmp_path)
    records.add("docker", IMAGE, Durations(build_seconds=1))
    assert records.find("docker", replace(IMAGE, digest="sha256:2")) == Durations()
    assert records.find("podman", IMAGE) == Durations()


def test_a_directory_in_the_place_of_an_image_has_no_record(tmp_path: Path) -> None:
    records, place = ImageRecords(tmp_path / "records"), tmp_path / "image"
    place.mkdir()
    image = replace(IMAGE, name=str(place), digest=None)
    records.add("charliecloud", image, Durations(build_seconds=1))
    assert records.find("charliecloud", image) == Durations(build_seconds=1)
    place.rename(tmp_path / "before")
    place.mkdir()
    assert records.find("charliecloud", image) == Durations()


def test_a_damaged_record_counts_as_missing(tmp_path: Path) -> None:
    records = ImageRecords(tmp_path)
    records.add("docker", IMAGE, Durations(build_seconds=1))
    (path,) = tmp_path.iterdir()
    for text in ("", "[]", "{", '{"build_seconds": "long"}', "null"):
        path.write_text(text)
        assert records.find("docker", IMAGE) == Durations()


def test_the_start_of_a_process_is_known_until_its_end() -> None:
    began = process_start_unix_nano(os.getpid())
    assert began is not None
    assert began < time.time_ns()
    assert process_start_unix_nano(2**22 + 1) is None
