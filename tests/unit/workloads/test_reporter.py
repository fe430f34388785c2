import itertools
import math
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import NonFiniteError
from gpuagent_workloads.report import PHASES, Reporter
from tests.unit.workloads.runs import environment_with, of_kind, phases_of, read_events, results_of


def test_a_phase_is_in_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "events.0.0.jsonl"
    with Reporter(path) as reporter:
        reporter.phase("warmup")
        assert phases_of(read_events(path)) == ["warmup"]


@pytest.mark.parametrize("phase", ["warmup", "measure"])
def test_nothing_is_written_within_a_timed_phase(tmp_path: Path, phase: str) -> None:
    path = tmp_path / "events.0.0.jsonl"
    with Reporter(path) as reporter:
        reporter.phase(phase)
        before = path.read_bytes()
        reporter.step(wall_seconds=0.5, items=64)
        reporter.result("loss", 0.1)
        reporter.metric("loss", 0.1, step=0)
        assert path.read_bytes() == before
        reporter.phase("teardown")
        assert [event["event"] for event in read_events(path)] == ["phase", "step", "result", "metric", "phase"]


def test_steps_are_numbered_within_their_phase(tmp_path: Path) -> None:
    path = tmp_path / "events.0.0.jsonl"
    with Reporter(path) as reporter:
        for phase in ("warmup", "measure"):
            reporter.phase(phase)
            reporter.step(wall_seconds=0.5, items=1)
            reporter.step(wall_seconds=0.5, items=1, gpu_seconds=0.25)
    steps = of_kind(read_events(path), "step")
    assert [(step["phase"], step["step"]) for step in steps] == [
        ("warmup", 0),
        ("warmup", 1),
        ("measure", 0),
        ("measure", 1),
    ]
    assert "gpu_seconds" not in steps[0]
    assert steps[1]["gpu_seconds"] == 0.25


def test_a_program_that_goes_on_where_another_stopped_numbers_its_steps_from_there(tmp_path: Path) -> None:
    path = tmp_path / "events.0.1.jsonl"
    with Reporter(path) as reporter:
        reporter.phase("measure", first_step=20)
        reporter.step(wall_seconds=0.5, items=1)
        reporter.step(wall_seconds=0.5, items=1)
    assert [step["step"] for step in of_kind(read_events(path), "step")] == [20, 21]


def test_leaving_the_reporter_writes_what_waits_and_ends_the_last_phase(tmp_path: Path) -> None:
    path = tmp_path / "events.0.0.jsonl"
    with pytest.raises(KeyboardInterrupt), Reporter(path) as reporter:
        reporter.phase("measure")
        reporter.step(wall_seconds=0.5, items=1)
        raise KeyboardInterrupt
    assert [event["event"] for event in read_events(path)] == ["phase", "step", "phase"]
    assert phases_of(read_events(path)) == ["measure", "end"]


def test_events_bear_the_wall_clock_unless_told_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "events.0.0.jsonl"
    ticks = itertools.count(100)
    with Reporter(path, now_unix_nano=lambda: next(ticks)) as reporter:
        reporter.phase("measure")
        reporter.step(wall_seconds=0.5, items=1, at_unix_nano=7)
        reporter.phase("teardown", at_unix_nano=8)
    assert [event["t"] for event in read_events(path)] == [100, 7, 8, 101]


@given(value=st.sampled_from([math.nan, math.inf, -math.inf]))
def test_figures_that_are_not_finite_are_refused_by_name(value: float) -> None:
    reporter = Reporter(None)
    with pytest.raises(NonFiniteError, match="accuracy is"):
        reporter.result("accuracy", value)
    with pytest.raises(NonFiniteError, match="loss at step 3 is"):
        reporter.metric("loss", value, step=3)
    with pytest.raises(NonFiniteError, match="wall_seconds is"):
        reporter.step(wall_seconds=value, items=1)


@given(
    names=st.lists(st.text(max_size=20), max_size=5),
    value=st.one_of(st.text(), st.integers(), st.floats(allow_nan=False, allow_infinity=False)),
)
def test_whatever_is_reported_is_read_back_unchanged(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], value: float | str
) -> None:
    path = tmp_path_factory.mktemp("run") / "events.0.0.jsonl"
    with Reporter(path) as reporter:
        for name in names:
            reporter.result(name, value, unit="u", phase="measure")
    read = [(event["name"], event["value"]) for event in of_kind(read_events(path), "result")]
    assert read == [(name, value) for name in names]


def test_an_unknown_phase_is_an_error_of_the_program() -> None:
    with pytest.raises(ValueError, match="phases"):
        Reporter(None).phase("lunch")


def test_rank_and_restart_name_the_file(tmp_path: Path) -> None:
    environment = {"GPUAGENT_RUN_DIR": str(tmp_path), "RANK": "3", "TORCHELASTIC_RESTART_COUNT": "2"}
    with Reporter.from_environment(environment):
        pass
    assert phases_of(read_events(tmp_path / "events.3.2.jsonl")) == ["end"]


def test_an_existing_file_is_appended_to(tmp_path: Path) -> None:
    for _ in range(2):
        with Reporter.from_environment({"GPUAGENT_RUN_DIR": str(tmp_path)}):
            pass
    assert phases_of(read_events(tmp_path / "events.0.0.jsonl")) == ["end", "end"]


def test_without_a_run_directory_results_are_only_kept() -> None:
    with Reporter.from_environment({}) as reporter:
        for phase in PHASES:
            reporter.phase(phase)
        reporter.result("accuracy", 98.5, unit="%")
    assert [(result.name, result.value, result.unit) for result in reporter.results] == [("accuracy", 98.5, "%")]


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"GPUAGENT_RUN_DIR": "/nowhere/at/all"}, "GPUAGENT_RUN_DIR"),
        ({"RANK": "one"}, "RANK"),
        ({"RANK": "-1"}, "RANK"),
    ],
)
def test_an_environment_that_makes_no_sense_is_misuse(environment: dict[str, str], named: str) -> None:
    with pytest.raises(MisuseError, match=named):
        Reporter.from_environment(environment)


TEXT = (Path(__file__).parents[3] / "docs" / "run-directory.md").read_text(encoding="utf-8")


def shell_example() -> str:
    (code,) = re.findall(r"^```bash\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    return str(code)


@pytest.mark.parametrize(
    ("rank", "restart", "name"), [(None, None, "events.0.0.jsonl"), ("2", "1", "events.2.1.jsonl")]
)
def test_the_shell_example_reports_through_the_run_directory(
    tmp_path: Path, rank: str | None, restart: str | None, name: str
) -> None:
    torchrun = {"RANK": rank, "TORCHELASTIC_RESTART_COUNT": restart} if rank and restart else {}
    environment = environment_with(GPUAGENT_RUN_DIR=str(tmp_path), **torchrun)
    subprocess.run(["bash", "-euc", shell_example()], env=environment, check=True)
    events = read_events(tmp_path / name)
    assert phases_of(events) == ["measure", "teardown", "end"]
    assert results_of(events)["throughput"] > 0
