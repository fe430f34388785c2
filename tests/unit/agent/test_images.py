"""Images: records of them by identity, not by name, builders by the installed programs, and the wheel inside."""

import os
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from gpuagent.environments.environment import Image
from gpuagent.images.builders import Work, find_builder
from gpuagent.images.recipe import write_wheel
from gpuagent.images.records import Durations, ImageRecords
from gpuagent.runs.execution import process_start_unix_nano

IMAGE = Image(name="workloads", digest="sha256:1", architecture="x86_64", size_bytes=10, layers=2)


def test_times_of_one_image_in_one_runtime_are_kept_together(tmp_path: Path) -> None:
    records, both = ImageRecords(tmp_path / "images"), Durations(build_seconds=199.7, push_seconds=60)
    records.add("docker", IMAGE, Durations(build_seconds=199.7))
    assert records.add("docker", IMAGE, Durations(push_seconds=60)) == both
    assert records.find("docker", replace(IMAGE, name="another")) == both
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


def test_charliecloud_s_scripts_find_the_python_beside_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system, activated = tmp_path / "system", tmp_path / "activated"
    system.mkdir()
    (system / "ch-image").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{activated}:{system}")
    build, _convert = find_builder("charliecloud").build(Work(name="work", target="made"))
    assert build[:2] == ["env", f"PATH={system}:{activated}:{system}"]


def test_the_wheel_of_an_image_holds_every_package(tmp_path: Path) -> None:
    packages = {path.parent.name for path in Path(__file__).parents[3].glob("*/gpuagent*/__init__.py")}
    with zipfile.ZipFile(write_wheel(tmp_path)) as wheel:
        held = {name.partition("/")[0] for name in wheel.namelist()}
    assert "gpuagent_common" in packages
    assert packages <= held
