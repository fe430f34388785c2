"""The origin of the runs: the programs that were started, when, and the agents that measured them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.query.ask import Ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The origin of the figures.

    Attributes:
        from_time, to_time: UTC; when the first run started and the last one ended; None: not known.
        run_ids: of each side, in the order in which they were queued.
        commands: (side, command as JSON) → how many runs started it.
        agents: versions of the agents that measured.
    """

    from_time: datetime | None
    to_time: datetime | None
    run_ids: Mapping[str, tuple[str, ...]]
    commands: Mapping[tuple[str, str], int]
    agents: tuple[str, ...]


def load_origin(ask: Ask, comparison: Comparison) -> Origin:
    """Return how the runs that are compared came about."""
    layout, sessions = comparison.layout, comparison.facts.sessions
    runs = [run for block in layout.blocks for cell in block.cells for run in cell.runs]
    told = {row["run_id"]: row["command"] for row in ask(_COMMANDS, [[run.run_id for run in runs]])}
    versions = {record["agent_version"] for run in runs for record in sessions.get(run.run_id, [])}
    return Origin(
        from_time=min((run.started_at for run in runs if run.started_at), default=None),
        to_time=max((run.ended_at for run in runs if run.ended_at), default=None),
        run_ids={side: tuple(run.run_id for run in runs if run.side == side) for side in layout.sides},
        commands=Counter(
            (run.side or "", command) for run in runs if (command := told.get(run.run_id)) not in (None, "[]")
        ),
        agents=tuple(sorted(filter(None, versions))),
    )


_COMMANDS = """
SELECT run_id, CAST(command AS VARCHAR) AS command FROM runs
WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))"""
