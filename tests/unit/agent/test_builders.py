"""Commands of builders where they depend on the installed programs, and the wheel in an image."""

import zipfile
from pathlib import Path

import pytest

from gpuagent.images.builders import Work, find_builder
from gpuagent.images.recipe import write_wheel


def test_charliecloud_s_scripts_find_the_python_beside_them_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
