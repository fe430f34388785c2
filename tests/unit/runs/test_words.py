"""Words of answers: commands that can be pasted."""

from pathlib import Path

import pytest

from gpuagent_collector.runs.words import name_file


def test_a_next_command_writes_a_file_that_does_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("report.html", "report-2.html", "report-3.html"):
        assert name_file("report.html") == name
        Path(name).touch()
