"""How builders are called, where that depends on what is installed."""

from pathlib import Path

import pytest

from gpuagent.images.builders import Work, find_builder


def test_charliecloud_s_scripts_find_the_python_beside_them_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, activated = tmp_path / "system", tmp_path / "activated"
    system.mkdir()
    (system / "ch-image").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{activated}:{system}")
    build, _convert = find_builder("charliecloud").build(Work(name="work", target="made"))
    assert build[:2] == ["env", f"PATH={system}:{activated}:{system}"]
