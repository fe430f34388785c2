"""Requests to older collectors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from rich.console import Console

from gpuagent_collector.cli.printing import asking
from gpuagent_collector.launching.agents import Agent
from gpuagent_collector.launching.client import RunsClient
from gpuagent_collector.launching.progress import (
    AWork,
    ExperimentProgress,
    RunProgress,
    count_by_status,
    follow,
    read_progress,
)
from gpuagent_collector.launching.show import Lines, LiveTable
from gpuagent_collector.query.reader import FileReader
from gpuagent_collector.query.remote import RemoteReader
from gpuagent_collector.store import Store
from gpuagent_common.errors import GpuAgentError
from gpuagent_proto.v1.run_pb2 import ExperimentState

AWAY = GpuAgentError("it cannot be reached")

QUEUED = ExperimentState(name="e", status="queued", planned_runs=4)
RUNNING = ExperimentState(
    name="e", status="running", planned_runs=4, ended_runs=1, failed_runs=1, doing="mnist", left_seconds=200
)
BETWEEN = ExperimentState(name="e", status="running", planned_runs=4, ended_runs=2)
COMPLETE = ExperimentState(name="e", status="complete", planned_runs=4, ended_runs=4)
OVER = ExperimentState(name="e", status="incomplete", planned_runs=4, ended_runs=2, reason="the budget ends it")


def agent(node: str = "gpu-\x1b[2J7") -> Agent:
    return Agent(session_uuid=node, node_uuid=node, version="1", allows_commands=True, labels={})


def run(status: str = "running", **figures: object) -> RunProgress:
    return RunProgress(**{"run_id": "mnist-1", "agent": agent(), "is_known": True, "status": status, **figures})  # type: ignore[arg-type]


def experiment(node: str, state: ExperimentState) -> ExperimentProgress:
    return ExperimentProgress(agent=agent(node), state=state)


def follow_steps(launched: Sequence[AWork], steps: Sequence[Sequence[AWork] | GpuAgentError]) -> Sequence[AWork]:
    """Follow work of which each look finds one step; the last one stays. A look takes a second."""
    now = [0.0]
    left = list(steps)

    def look() -> Mapping[str, AWork]:
        step = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(step, GpuAgentError):
            raise step
        return {work.key: work for work in step}

    def sleep(seconds: float) -> None:
        now[0] += seconds

    clock: Callable[[], float] = lambda: now[0]  # noqa: E731
    return follow(launched, look, Lines(), sleep=sleep, clock=clock)


def test_a_line_is_printed_for_each_change_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    unknown = run("queued", is_known=False)
    failed = run("failed", elapsed_seconds=75.0, reason="exit code 3")
    stages = [run("queued"), run(phase="measure"), run(phase="measure", steps=7), failed]
    (ended,) = follow_steps([unknown], [[unknown], *([stage] for stage in stages)])
    assert (ended.status, ended.has_succeeded) == ("failed", False)
    assert capsys.readouterr().err.splitlines() == [
        r"collector: mnist-1 on gpu-\x1b[2J7: queued",
        r"collector: mnist-1 on gpu-\x1b[2J7: running, measure",
        r"collector: mnist-1 on gpu-\x1b[2J7: failed after 1 min 15 s: exit code 3",
    ]


def test_a_line_is_printed_when_a_run_of_an_experiment_begins_and_at_its_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    steps = [[], *([experiment("a", state)] for state in (QUEUED, RUNNING, RUNNING, BETWEEN, OVER))]
    (ended,) = follow_steps([experiment("a", QUEUED)], steps)
    assert (ended.state.status, ended.has_succeeded) == ("incomplete", False)
    assert capsys.readouterr().err.splitlines() == [
        "collector: a: queued, 0 of 4 runs made",
        "collector: a: running, 1 of 4 runs made, 1 failed, about 3 min left; mnist",
        "collector: a: incomplete, 2 of 4 runs made: the budget ends it",
    ]


@pytest.mark.parametrize(
    ("launched", "ended"),
    [(run(), run("succeeded")), (experiment("a", RUNNING), experiment("a", COMPLETE))],
    ids=["run", "experiment"],
)
def test_an_absent_collector_is_waited_for_and_reported_once(
    launched: AWork, ended: AWork, capsys: pytest.CaptureFixture[str]
) -> None:
    assert follow_steps([launched], [[launched], *[AWAY] * 100, [ended]]) == [ended]
    assert capsys.readouterr().err.count("it cannot be reached; trying again") == 1
    with pytest.raises(GpuAgentError, match="cannot be reached"):
        follow_steps([launched], [[launched], AWAY])


def test_agents_have_time_to_come_back_after_the_collector() -> None:
    launched = experiment("a", RUNNING)
    steps: list[list[ExperimentProgress] | GpuAgentError] = [*[AWAY] * 140, *[[]] * 20, [experiment("a", COMPLETE)]]
    assert [each.state.status for each in follow_steps([launched], steps)] == ["complete"]


def test_a_run_that_its_agent_never_reported_is_lost() -> None:
    unknown = run("queued", is_known=False)
    (ended,) = follow_steps([unknown], [[]])
    assert (ended.status, ended.reason) == ("lost", "its agent went away before it reported the run")
    (ended,) = follow_steps([unknown], [*[[unknown]] * 200, [run("succeeded")]])
    assert ended.status == "succeeded"


def test_an_experiment_on_an_absent_agent_is_lost_and_the_others_are_waited_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    a, b = experiment("a", RUNNING), experiment("b", RUNNING)
    ended = follow_steps([a, b], [[a, b], *[[b]] * 200, [experiment("b", COMPLETE)]])
    assert [each.state.status for each in ended] == ["lost", "complete"]
    lines = capsys.readouterr().err.splitlines()
    assert "lost, 1 of 4 runs made, 1 failed" in lines[-2]
    assert lines[-1] == "collector: b: complete, 4 of 4 runs made"


def test_a_terminal_shows_the_runs_that_matter_and_their_number() -> None:
    console = Console(force_terminal=True, width=80, height=8, color_system=None, record=True)
    with LiveTable(console) as table:
        table.update([*[run("queued")] * 5, run(phase="measure", steps=1234, elapsed_seconds=61.0)])
        table.print("a word\x1b")
    text = console.export_text()
    assert text.index("running") < text.index("queued")
    assert "1,234" in text
    assert "1 min 01 s" in text
    assert "0 of 6 ended; 2 not shown" in text
    assert "\x1b[2J" not in text
    assert r"collector: a word\x1b" in text


def test_a_terminal_has_no_columns_of_what_no_run_reports() -> None:
    console = Console(force_terminal=True, width=80, height=8, color_system=None, record=True)
    with LiveTable(console) as table:
        table.update([run(elapsed_seconds=61.0)])
    header = console.export_text().splitlines()[0].split()
    assert header == ["run", "node", "platform", "status", "elapsed"]


def test_a_terminal_shows_experiments_as_runs() -> None:
    console = Console(force_terminal=True, width=80, height=24, color_system=None, record=True)
    with LiveTable(console) as table:
        table.update([experiment("a" * 30, COMPLETE), experiment("b" * 30, RUNNING)])
    text = console.export_text()
    assert text.index("bbb") < text.index("1 of 4") < text.index("3 min") < text.index("mnist") < text.index("aaa")
    assert "1 of 2 ended" in text


AGENT = Agent(session_uuid="s", node_uuid="gpu-7", version="1", allows_commands=False, labels={})

_ROWS = """
INSERT INTO run_requests (run_id, repeat, time) VALUES ('runs, too', 1, now()), ('waits', 2, now());
INSERT INTO run_states (run_id, status, time, session_id) VALUES
    ('runs, too', 'queued', now(), 1), ('waits', 'queued', now(), 1),
    ('runs, too', 'running', now() + INTERVAL 1 HOUR, 1);
INSERT INTO run_events (run_id, event, name, time) VALUES
    ('runs, too', 'phase', 'setup', now()), ('runs, too', 'phase', 'measure', now() + INTERVAL 1 HOUR);
INSERT INTO steps (run_id, phase, step, time) VALUES
    ('runs, too', 'warmup', 9, now() + INTERVAL 1 HOUR), ('runs, too', 'measure', 4, now() + INTERVAL 2 SECOND);
"""


def test_progress_comes_from_the_store_also_of_a_run_with_a_comma_in_its_id(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "runs.duckdb")) as store:
        spec = store.spec
        with closing(store.connect()) as connection:
            connection.execute(_ROWS)
    launched = [RunProgress(run_id=run_id, agent=AGENT) for run_id in ("runs, too", "waits", "unknown")]
    with closing(FileReader(spec)) as reader:
        found = read_progress(asking(reader, show_sql=False), launched)
    assert set(found) == {"runs, too", "waits"}
    runs, waits = found.values()
    assert (runs.status, runs.phase, runs.steps, runs.repeat) == ("running", "measure", 5, 1)
    assert runs.elapsed_seconds == 0  # the clocks differ by an hour
    assert (waits.status, waits.phase, waits.steps, waits.elapsed_seconds) == ("queued", None, None, None)
    assert (launched[2].is_known, launched[2].status, launched[2].has_ended) == (False, "queued", False)


@pytest.fixture
def older() -> Iterator[RunsClient]:
    """A client of a server without our methods."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with closing(RemoteReader(f"127.0.0.1:{port}", "token")) as reader:
            yield RunsClient(reader)
    finally:
        server.stop(0).wait()


def test_a_collector_without_experiments_is_to_be_upgraded(older: RunsClient) -> None:
    with pytest.raises(GpuAgentError, match="upgrade it"):
        older.experiments(["session"], "study")


def test_ended_runs_are_counted_by_how_they_ended() -> None:
    runs = [*[run("failed")] * 2, *[run("succeeded")] * 3, run("timed_out")]
    assert count_by_status(runs) == "3 succeeded, 2 failed, 1 timed out"
