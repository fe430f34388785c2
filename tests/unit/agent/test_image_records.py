"""What is kept of images: by what they are, not by what they are called."""

import os
import time
from dataclasses import replace
from pathlib import Path

from gpuagent.environments import Image
from gpuagent.images.records import Durations, ImageRecords
from gpuagent.runs.start_up import process_start_unix_nano

IMAGE = Image(name="workloads", digest="sha256:1", architecture="x86_64", size_bytes=10, layers=2)


def test_what_was_done_one_after_the_other_is_kept_together(tmp_path: Path) -> None:
    records = ImageRecords(tmp_path / "images")
    records.add("docker", IMAGE, Durations(build_seconds=199.7))
    assert records.add("docker", IMAGE, Durations(push_seconds=60)) == Durations(build_seconds=199.7, push_seconds=60)
    assert records.find("docker", replace(IMAGE, name="another")) == Durations(build_seconds=199.7, push_seconds=60)


def test_another_image_of_the_same_name_and_another_runtime_have_nothing_of_it(tmp_path: Path) -> None:
    records = ImageRecords(tmp_path)
    records.add("docker", IMAGE, Durations(build_seconds=1))
    assert records.find("docker", replace(IMAGE, digest="sha256:2")) == Durations()
    assert records.find("podman", IMAGE) == Durations()


def test_a_directory_that_takes_an_image_s_place_has_nothing_of_it(tmp_path: Path) -> None:
    records, place = ImageRecords(tmp_path / "records"), tmp_path / "image"
    place.mkdir()
    image = replace(IMAGE, name=str(place), digest=None)
    records.add("charliecloud", image, Durations(build_seconds=1))
    assert records.find("charliecloud", image) == Durations(build_seconds=1)
    place.rename(tmp_path / "before")
    place.mkdir()
    assert records.find("charliecloud", image) == Durations()


def test_a_damaged_record_is_none(tmp_path: Path) -> None:
    records = ImageRecords(tmp_path)
    records.add("docker", IMAGE, Durations(build_seconds=1))
    (path,) = tmp_path.iterdir()
    for text in ("", "[]", "{", '{"build_seconds": "long"}', "null"):
        path.write_text(text)
        assert records.find("docker", IMAGE) == Durations()


def test_when_a_process_began_is_known_until_it_is_gone() -> None:
    began = process_start_unix_nano(os.getpid())
    assert began is not None
    assert began < time.time_ns()
    assert process_start_unix_nano(2**22 + 1) is None
