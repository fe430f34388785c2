"""Which run is meant: by its identity, or by as much of its beginning as no other has."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuagent_collector.query.ask import Ask
from gpuagent_common.errors import MisuseError
from gpuagent_common.statuses import FINAL_STATUSES

_SQL = """
SELECT run_id, status, reason, hostname FROM runs LEFT JOIN nodes USING (node_id)
WHERE starts_with(run_id, ?) ORDER BY run_id <> ?, run_id LIMIT 4
""".strip()

_OF_EXPERIMENT = """
SELECT run_id, status, reason, hostname FROM runs LEFT JOIN nodes USING (node_id)
WHERE experiment = ? AND status IN ('queued', 'running') ORDER BY queued_at DESC
""".strip()


_PARTS = """
SELECT node_uuid, hostname, status FROM run_parts LEFT JOIN nodes USING (node_id)
WHERE run_id = ? AND node_id IS NOT NULL ORDER BY hostname, node_uuid
""".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRun:
    """A run that the user named.

    Attributes:
        status: as in the view `runs`; None: the store has not heard of it, as right after its launch.
    """

    run_id: str
    status: str | None = None
    reason: str | None = None
    hostname: str | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the store knows how it ended."""
        return self.status in FINAL_STATUSES


def find_run(ask: Ask, name: str) -> NamedRun:
    """Return the run that `name` is, or is the beginning of.

    Raises:
        MisuseError: it is empty, or the beginning of several.
    """
    if not name:
        raise MisuseError("the name of a run is empty; `collector runs` lists the runs")
    found = [NamedRun(**row) for row in ask(_SQL, [name, name])]
    if len(found) > 1 and found[0].run_id != name:
        several = ", ".join(run.run_id for run in found[:3])
        raise MisuseError(f"several runs begin with {name}: {several}{', …' if len(found) > 3 else ''}")
    return found[0] if found else NamedRun(run_id=name)


def open_runs(ask: Ask, experiment: str) -> list[NamedRun]:
    """Return the runs of an experiment that run or wait, those queued last first: so none of them begins meanwhile."""
    return [NamedRun(**row) for row in ask(_OF_EXPERIMENT, [experiment])]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPart:
    """A run on one of its nodes.

    Attributes:
        node_uuid: the node; empty: whichever has it.
        status: how it stands there; None: the store has not heard of it.
    """

    run_id: str
    node_uuid: str = ""
    hostname: str | None = None
    status: str | None = None

    @property
    def node(self) -> str:
        """What people call its node."""
        return self.hostname or self.node_uuid

    @property
    def has_ended(self) -> bool:
        """Whether the store knows how it ended there."""
        return self.status in FINAL_STATUSES


def find_parts(ask: Ask, run: NamedRun, node: str | None) -> list[RunPart]:
    """Return a run on each of its nodes, or on the one of that name.

    Raises:
        MisuseError: it is not on that node; says where it is.
    """
    parts = [RunPart(run_id=run.run_id, **row) for row in ask(_PARTS, [run.run_id])]
    if node is None:
        return parts or [RunPart(run_id=run.run_id, status=run.status)]
    found = [part for part in parts if node in (part.hostname, (part.hostname or "").partition(".")[0], part.node_uuid)]
    if not found:
        where = f"it is on {_listed(parts)}" if parts else "the store knows of none"
        raise MisuseError(f"{run.run_id} is on no node {node}; {where}")
    return found


def only_part(parts: Sequence[RunPart]) -> RunPart:
    """Return the one part that there is.

    Raises:
        MisuseError: there are several; says on which nodes.
    """
    if len(parts) > 1:
        raise MisuseError(
            f"{parts[0].run_id} is on {_listed(parts)}; one of them can be followed: --node {parts[0].node}"
        )
    return parts[0]


def _listed(parts: Sequence[RunPart]) -> str:
    return ", ".join(part.node for part in parts)
