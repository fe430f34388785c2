"""Which run is meant: by its identity, or by as much of its beginning as no other has."""

from dataclasses import dataclass

from gpuagent_collector.compare.data import Ask
from gpuagent_collector.errors import MisuseError
from gpuagent_collector.launching.progress import ENDED

_SQL = """
SELECT run_id, status, reason, hostname FROM runs LEFT JOIN nodes USING (node_id)
WHERE starts_with(run_id, ?) ORDER BY run_id <> ?, run_id LIMIT 4
""".strip()

_OF_EXPERIMENT = """
SELECT run_id, status, reason, hostname FROM runs LEFT JOIN nodes USING (node_id)
WHERE experiment = ? AND status IN ('queued', 'running') ORDER BY queued_at DESC
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
        return self.status in ENDED


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
