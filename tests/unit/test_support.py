"""Shared parts of the tests themselves."""

import sys
from pathlib import Path

import pytest

from tests.support.programs import need
from tests.support.servers import Node


def test_a_skipped_test_ends_the_processes_of_its_node(tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception), Node(tmp_path) as node:
        process = node.start(sys.executable, "-c", "import time; time.sleep(600)", log="log")
        pytest.skip("Slurm is missing")
    assert process.returncode is not None


@pytest.mark.parametrize(("ci", "raised"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_a_missing_program_skips_with_its_package_and_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch, ci: str, raised: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(raised, match="needs ch-run, ch-image, dash; install: charliecloud dash"):
        need("ch-run", "ch-image", "dash")
