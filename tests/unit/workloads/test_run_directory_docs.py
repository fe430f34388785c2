import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.workloads.runs import environment_with, of_kind, phases_of, read_events, results_of

TEXT = (Path(__file__).parents[3] / "docs" / "run-directory.md").read_text(encoding="utf-8")


def example(language: str) -> str:
    (code,) = re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    return str(code)


@pytest.mark.parametrize(
    ("rank", "restart", "name"), [(None, None, "events.0.0.jsonl"), ("2", "1", "events.2.1.jsonl")]
)
def test_the_shell_example_reports_through_the_run_directory(
    tmp_path: Path, rank: str | None, restart: str | None, name: str
) -> None:
    torchrun = {"RANK": rank, "TORCHELASTIC_RESTART_COUNT": restart} if rank and restart else {}
    environment = environment_with(GPUAGENT_RUN_DIR=str(tmp_path), **torchrun)
    subprocess.run(["bash", "-euc", example("bash")], env=environment, check=True)
    events = read_events(tmp_path / name)
    assert phases_of(events) == ["measure", "teardown", "end"]
    assert results_of(events)["throughput"] > 0


def test_the_python_example_reports_through_the_run_directory(tmp_path: Path) -> None:
    environment = environment_with(GPUAGENT_RUN_DIR=str(tmp_path))
    subprocess.run([sys.executable, "-c", example("python")], env=environment, check=True)
    events = read_events(tmp_path / "events.0.0.jsonl")
    assert phases_of(events) == ["setup", "measure", "teardown", "end"]
    assert len(of_kind(events, "step")) == 10
    assert results_of(events) == {"total": 333328333350000}


def test_the_python_example_runs_without_a_run_directory(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", example("python")], env=environment_with(), cwd=tmp_path, check=True)
    assert list(tmp_path.iterdir()) == []
