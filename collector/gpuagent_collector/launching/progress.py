"""How runs come along, as the store knows it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuagent_collector.launching.agents import Agent
from gpuagent_collector.query.ask import Ask
from gpuagent_common.statuses import FINAL_STATUSES
from gpuagent_proto.v1.run_service_pb2 import LaunchedRuns

PROGRESS_SQL = """
WITH shown AS (
    FROM runs WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
), phases AS (
    SELECT run_id, arg_max(name, time) AS phase FROM run_events
    WHERE event = 'phase' AND run_id IN (SELECT run_id FROM shown) GROUP BY run_id
), stepped AS (  -- the time bounds what is read of a large table
    SELECT run_id, phase, max(step) + 1 AS steps FROM steps
    WHERE time > (SELECT min(queued_at) FROM shown) AND run_id IN (SELECT run_id FROM shown WHERE status = 'running')
    GROUP BY run_id, phase
)
SELECT
    shown.run_id, repeat, status, exit_code, reason, phases.phase, steps,
    CASE WHEN started_at IS NOT NULL  -- greatest passes over NULL
    THEN greatest(0, epoch(coalesce(ended_at, now()::TIMESTAMP) - started_at)) END AS elapsed_seconds
FROM shown LEFT JOIN phases USING (run_id) LEFT JOIN stepped ON stepped.run_id = shown.run_id
    AND stepped.phase = phases.phase
""".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedRun:
    """A run that an agent took.

    Attributes:
        session_uuid: of the agent.
        node, platform: of the agent; None: not known.
    """

    run_id: str
    session_uuid: str
    node: str
    platform: str | None


def launched_runs(taken: Sequence[tuple[Agent, LaunchedRuns]]) -> list[LaunchedRun]:
    """Return the runs that agents said they took."""
    return [
        LaunchedRun(run_id=run_id, session_uuid=agent.session_uuid, node=agent.node, platform=agent.platform)
        for agent, answer in taken
        for run_id in answer.run_ids
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How a launched run stands.

    Attributes:
        status: as in the view `runs`; `queued` also while the store has not heard of it.
        steps: how many of its phase it has made; None: it reports none.
        elapsed_seconds: since its program started; None: it has not.
    """

    run: LaunchedRun
    is_known: bool
    status: str = "queued"
    repeat: int | None = None
    exit_code: int | None = None
    reason: str | None = None
    phase: str | None = None
    steps: int | None = None
    elapsed_seconds: float | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is to come."""
        return self.status in FINAL_STATUSES


def read_progress(ask: Ask, runs: Sequence[LaunchedRun]) -> list[Progress]:
    """Return how each of the runs stands, in their order."""
    rows = {row["run_id"]: row for row in ask(PROGRESS_SQL, [[run.run_id for run in runs]])}
    return [_progress(run, rows.get(run.run_id)) for run in runs]


def _progress(run: LaunchedRun, row: Mapping[str, Any] | None) -> Progress:
    if row is None:
        return Progress(run=run, is_known=False)
    figures = {name: value for name, value in row.items() if name not in ("run_id", "status")}
    return Progress(run=run, is_known=True, status=row["status"] or "queued", **figures)
