from collections.abc import Callable, Iterator, Mapping

from gpuagent_collector.launching.agents import Agent
from gpuagent_collector.launching.conducted import Lines, OnAgent, follow
from gpuagent_common.errors import GpuAgentError
from gpuagent_proto.v1.run_pb2 import ExperimentState

QUEUED = ExperimentState(name="e", status="queued", planned_runs=4)
RUNNING = ExperimentState(
    name="e", status="running", planned_runs=4, ended_runs=1, failed_runs=1, doing="mnist", left_seconds=200
)
BETWEEN = ExperimentState(name="e", status="running", planned_runs=4, ended_runs=2)
COMPLETE = ExperimentState(name="e", status="complete", planned_runs=4, ended_runs=4)
OVER = ExperimentState(name="e", status="incomplete", planned_runs=4, ended_runs=2, reason="the budget ends it")

Look = Callable[[], Mapping[str, ExperimentState]]


def on(*sessions: str) -> list[OnAgent]:
    agents = [
        Agent(session_uuid=each, node_uuid=each, version="1", allows_commands=True, labels={}) for each in sessions
    ]
    return [OnAgent(agent=agent, state=QUEUED) for agent in agents]


def looking(*answers: Mapping[str, ExperimentState] | GpuAgentError) -> Look:
    """Return what gives these answers in turn, and the last one for ever."""

    def answer() -> Iterator[Mapping[str, ExperimentState] | GpuAgentError]:
        yield from answers
        while True:
            yield answers[-1]

    given = answer()

    def look() -> Mapping[str, ExperimentState]:
        said = next(given)
        if isinstance(said, GpuAgentError):
            raise said
        return said

    return look


def followed(launched: list[OnAgent], look: Look) -> tuple[list[str], list[str]]:
    """Return the statuses at the end, and what was said; a second passes with each look."""
    said: list[str] = []
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    ended = follow(launched, look, Lines(said.append), sleep=sleep, clock=lambda: now[0])
    assert all(each.has_ended for each in ended)
    return [each.state.status for each in ended], said


def test_a_line_is_said_when_a_run_begins_and_at_the_end() -> None:
    statuses, said = followed(on("a"), looking({}, {"a": RUNNING}, {"a": RUNNING}, {"a": BETWEEN}, {"a": OVER}))
    assert statuses == ["incomplete"]
    assert said == [
        "a: queued, 0 of 4 runs made",
        "a: running, 1 of 4 runs made, 1 failed, about 3 min left; mnist",
        "a: incomplete, 2 of 4 runs made: the budget ends it",
    ]


def test_an_agent_that_stays_away_is_given_up_and_the_others_are_waited_for() -> None:
    looks = [{"a": RUNNING, "b": RUNNING}, *[{"b": RUNNING}] * 200, {"b": COMPLETE}]
    statuses, said = followed(on("a", "b"), looking(*looks))
    assert statuses == ["lost", "complete"]
    assert said[-2].startswith("a: lost, 1 of 4 runs made, 1 failed: its agent went away; launched again, the file")
    assert said[-1] == "b: complete, 4 of 4 runs made"


def test_a_collector_that_goes_away_for_a_while_is_waited_for_and_told_of_once() -> None:
    away = GpuAgentError("no collector answers")
    statuses, said = followed(on("a"), looking({"a": RUNNING}, away, away, {"a": COMPLETE}))
    assert statuses == ["complete"]
    assert said[1:] == ["no collector answers; trying again", "a: complete, 4 of 4 runs made"]
    assert followed(on("a"), looking(away))[0] == ["lost"]
