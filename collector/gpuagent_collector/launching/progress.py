"""Progress of launched work, and the waiting for it through absences of its agent and of the collector."""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from gpuagent_collector.launching.agents import Agent, Refusals
from gpuagent_collector.present.human import age, duration
from gpuagent_collector.query.ask import Ask
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.statuses import FINAL_STATUSES, RunStatus
from gpuagent_proto.v1.run_pb2 import ExperimentState

# Agents deliver once a second.
_LOOK_SECONDS = 1.0

# The collector declares an agent lost after two minutes; a little longer, so that its word comes first.
_PATIENCE_SECONDS = 150.0


PROGRESS_SQL = """
WITH shown AS (
    FROM runs WHERE run_id IN (SELECT unnest(?::VARCHAR[]))
), phases AS (
    SELECT run_id, arg_max(name, time) AS phase FROM run_events
    WHERE event = 'phase' AND run_id IN (SELECT run_id FROM shown) GROUP BY run_id
), stepped AS (  -- the time bounds what is read of a large table
    SELECT run_id, phase, max(step) + 1 AS steps FROM steps
    WHERE time > (SELECT min(queued_at) FROM shown) AND run_id IN (SELECT run_id FROM shown WHERE status = 'running')
    GROUP BY run_id, phase
)
SELECT
    shown.run_id, repeat, coalesce(status, 'queued') AS status, exit_code, reason, phases.phase, steps,
    CASE WHEN started_at IS NOT NULL  -- greatest passes over NULL
    THEN greatest(0, epoch(coalesce(ended_at, now()::TIMESTAMP) - started_at)) END AS elapsed_seconds
FROM shown LEFT JOIN phases USING (run_id) LEFT JOIN stepped ON stepped.run_id = shown.run_id
    AND stepped.phase = phases.phase
""".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """A launched run.

    Attributes:
        agent: the agent that accepted it.
        is_known: whether the store has it.
        status: as in the view `runs`; `queued` also while the store does not have it.
        steps: steps made in its phase; None: it reports none.
        elapsed_seconds: time since its program started; None: it has not started.
    """

    run_id: str
    agent: Agent
    is_known: bool = False
    status: str = RunStatus.QUEUED.value
    repeat: int | None = None
    exit_code: int | None = None
    reason: str | None = None
    phase: str | None = None
    steps: int | None = None
    elapsed_seconds: float | None = None

    @property
    def key(self) -> str:
        """Its identity among the launched work."""
        return self.run_id

    @property
    def has_ended(self) -> bool:
        """True if its status is final."""
        return self.status in FINAL_STATUSES

    @property
    def has_succeeded(self) -> bool:
        """True if its program succeeded."""
        return self.status == RunStatus.SUCCEEDED.value

    @property
    def running_phase(self) -> str | None:
        """The phase of a run that is running."""
        return self.phase if self.status == RunStatus.RUNNING.value else None

    @property
    def stage(self) -> tuple[object, ...] | None:
        """The values that make a new line when they change; None: nothing to print yet."""
        return (self.status, self.running_phase) if self.is_known else None

    @property
    def line(self) -> str:
        """Its status in one line."""
        line = f"{self.run_id} on {self.agent.node}: {self.status.replace('_', ' ')}"
        if not self.has_ended:
            return f"{line}, {self.running_phase}" if self.running_phase else line
        after = f" after {duration(self.elapsed_seconds)}" if self.elapsed_seconds is not None else ""
        return f"{line}{after}{f': {self.reason}' if self.reason else ''}"

    def as_lost(self) -> "RunProgress":
        """Return the run with the status `lost`: killed before its agent had written it down."""
        return replace(self, status=RunStatus.LOST.value, reason="its agent went away before it reported the run")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentProgress:
    """An experiment on one of its agents."""

    agent: Agent
    state: ExperimentState

    @property
    def key(self) -> str:
        """Its identity among the launched work."""
        return self.agent.session_uuid

    @property
    def status(self) -> str:
        """Its status, as its agent reported it."""
        return self.state.status

    @property
    def has_ended(self) -> bool:
        """True if its status is final."""
        return self.state.status not in (RunStatus.QUEUED.value, RunStatus.RUNNING.value)

    @property
    def has_succeeded(self) -> bool:
        """True if every run is made, and none failed."""
        return self.state.status == "complete" and not self.state.failed_runs

    @property
    def made(self) -> str:
        """The number of ended runs, of all."""
        return f"{self.state.ended_runs} of {self.state.planned_runs}"

    @property
    def stage(self) -> tuple[object, ...] | None:
        """The values that make a new line when they change; None between two runs."""
        state = self.state
        is_between_runs = state.status == RunStatus.RUNNING.value and not state.doing
        return None if is_between_runs else (state.status, state.ended_runs, state.doing)

    @property
    def line(self) -> str:
        """Its status in one line."""
        state = self.state
        failed = f", {state.failed_runs} failed" if state.failed_runs else ""
        line = f"{self.agent.node}: {state.status}, {self.made} runs made{failed}"
        if self.has_ended:
            return f"{line}: {state.reason}" if state.reason else line
        left = f", about {age(timedelta(seconds=state.left_seconds))} left" if state.HasField("left_seconds") else ""
        return f"{line}{left}; {state.doing}" if state.doing else f"{line}{left}"

    def as_lost(self) -> "ExperimentProgress":
        """Return the experiment with the status `lost`."""
        state = ExperimentState()
        state.CopyFrom(self.state)
        state.status, state.doing = RunStatus.LOST.value, ""
        state.reason = "its agent went away; launch the file again to resume it"
        return replace(self, state=state)


def read_progress(ask: Ask, runs: Sequence[RunProgress]) -> Mapping[str, RunProgress]:
    """Return the runs that the store has, by their identity."""
    rows = {row.pop("run_id"): row for row in ask(PROGRESS_SQL, [[run.run_id for run in runs]])}
    return {run.run_id: replace(run, is_known=True, **rows[run.run_id]) for run in runs if run.run_id in rows}


def count_by_status(runs: Sequence[RunProgress]) -> str:
    """Return how many runs ended in which way, the most frequent first: 18 succeeded, 6 failed."""
    counts = Counter(run.status.replace("_", " ") for run in runs)
    return ", ".join(f"{number:,} {status}" for status, number in counts.most_common())


def runs_to_json(runs: Sequence[RunProgress], refusals: Refusals) -> str:
    """Return the runs and the refusals as JSON."""
    names = ("repeat", "status", "exit_code", "reason", "elapsed_seconds")
    documents = [
        {"run_id": run.run_id, "node": run.agent.node, "platform": run.agent.platform}
        | {name: getattr(run, name) for name in names}
        for run in runs
    ]
    return json.dumps({"runs": documents, "refusals": _refusals(refusals)}, indent=2)


def experiment_to_json(
    name: str, launched: Sequence[ExperimentProgress], refusals: Refusals, commands: Sequence[str]
) -> str:
    """Return an experiment's state on its agents, the refusals, and the commands that answer it as JSON."""
    agents = [
        {
            "node": each.agent.node,
            "platform": each.agent.platform,
            "status": each.state.status,
            "reason": each.state.reason or None,
            "planned_runs": each.state.planned_runs,
            "ended_runs": each.state.ended_runs,
            "failed_runs": each.state.failed_runs,
        }
        for each in launched
    ]
    document = {"experiment": name, "agents": agents, "refusals": _refusals(refusals), "answers": list(commands)}
    return json.dumps(document, indent=2)


def _refusals(refusals: Refusals) -> list[dict[str, str | None]]:
    return [{"node": agent.node, "platform": agent.platform, "reason": reason} for agent, reason in refusals]


# Launched work on one agent.
AWork = TypeVar("AWork", RunProgress, ExperimentProgress)


class Display(Protocol):
    """A display of launched work."""

    def update(self, work: Sequence[Any], /) -> None:
        """Show the present state."""
        ...

    def print(self, words: str, /) -> None:
        """Print a line beside it."""
        ...


def follow(
    launched: Sequence[AWork],
    look: Callable[[], Mapping[str, AWork]],
    display: Display,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Sequence[AWork]:
    """Show launched work until all of it has ended; return its final state.

    Work that no look returns for 150 s is lost.

    Args:
        look: returns the work that the collector or its agents know of now, by its key.

    Raises:
        MisuseError: the collector refuses to answer.
        GpuAgentError: the collector has been away for 150 s.
    """
    answered = clock()
    seen = {work.key: answered for work in launched}
    is_away = False
    while True:
        try:
            found = look()
        except MisuseError:
            raise
        except GpuAgentError as error:
            if clock() - answered > _PATIENCE_SECONDS:
                raise
            if not is_away:
                display.print(f"{error}; trying again")
            is_away = True
        else:
            if is_away:
                # Nobody could be seen while the collector was away.
                seen = dict.fromkeys(seen, clock())
            is_away, answered = False, clock()
            seen |= dict.fromkeys(found, answered)
            launched = [found.get(work.key, work) for work in launched]
            launched = [
                work.as_lost() if not work.has_ended and answered - seen[work.key] > _PATIENCE_SECONDS else work
                for work in launched
            ]
            display.update(launched)
            if all(work.has_ended for work in launched):
                return launched
        sleep(_LOOK_SECONDS)
