from collections.abc import Callable, Iterator, Sequence

import pytest
from rich.console import Console

from gpuagent_collector.launching.follow import follow
from gpuagent_collector.launching.progress import LaunchedRun, Progress
from gpuagent_collector.launching.show import Lines, LiveTable
from gpuagent_common.errors import GpuAgentError

RUN = LaunchedRun(run_id="mnist-1", session_uuid="s", node="gpu-\x1b[2J7", platform="satori")


def progress(status: str = "running", **figures: object) -> Progress:
    return Progress(**{"run": RUN, "is_known": True, "status": status, **figures})  # type: ignore[arg-type]


Step = Progress | GpuAgentError


def following(steps: Sequence[Step], connected: set[str]) -> Sequence[Progress]:
    """Follow one run that stands so, a minute between two looks; the last step stays."""
    minutes: Iterator[int] = iter(range(10_000))
    left = list(steps)

    def look() -> Sequence[Progress]:
        step = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(step, GpuAgentError):
            raise step
        return [step]

    clock: Callable[[], float] = lambda: 10.0 * next(minutes)  # noqa: E731
    return follow(look, lambda: connected, Lines(), sleep=lambda _: None, clock=clock)


def test_lines_tell_each_change_once(capsys: pytest.CaptureFixture[str]) -> None:
    steps = [
        progress(is_known=False, status="queued"),
        progress("queued"),
        progress(phase="measure"),
        progress(phase="measure", steps=7),
        progress("failed", elapsed_seconds=75.0, reason="ended with exit code 3"),
    ]
    (ended,) = following(steps, {"s"})
    assert ended.status == "failed"
    assert capsys.readouterr().err.splitlines() == [
        r"collector: mnist-1 on gpu-\x1b[2J7: queued",
        r"collector: mnist-1 on gpu-\x1b[2J7: running, measure",
        r"collector: mnist-1 on gpu-\x1b[2J7: failed after 1 min 15 s: ended with exit code 3",
    ]


def test_a_collector_that_is_away_for_a_while_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    away = GpuAgentError("it cannot be reached")
    (ended,) = following([progress(), away, away, progress("succeeded")], {"s"})
    assert ended.status == "succeeded"
    assert capsys.readouterr().err.count("it cannot be reached; trying again") == 1
    with pytest.raises(GpuAgentError, match="it cannot be reached"):
        following([progress(), away], {"s"})


def test_a_run_that_its_agent_took_with_it_is_lost() -> None:
    unheard = progress(is_known=False, status="queued")
    (ended,) = following([unheard], set())
    assert (ended.status, ended.reason) == ("lost", "its agent went away before it told of it")
    (ended,) = following([*[unheard] * 100, progress("succeeded")], {"s"})
    assert ended.status == "succeeded"


def test_a_terminal_shows_the_runs_that_matter_and_how_many_there_are() -> None:
    console = Console(force_terminal=True, width=80, height=8, color_system=None, record=True)
    with LiveTable(console) as table:
        table.update([*[progress("queued")] * 5, progress(phase="measure", steps=1234, elapsed_seconds=61.0)])
        table.say("a word\x1b")
    text = console.export_text()
    assert text.index("running") < text.index("queued")
    assert "1,234" in text
    assert "1 min 01 s" in text
    assert "0 of 6 ended; 2 not shown" in text
    assert "\x1b[2J" not in text
    assert r"collector: a word\x1b" in text
