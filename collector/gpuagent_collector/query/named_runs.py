"""Runs that the user names, by their identity or its beginning."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuagent_collector.present.shortening import CUT
from gpuagent_collector.query.ask import Ask
from gpuagent_common.errors import MisuseError
from gpuagent_common.statuses import FINAL_STATUSES

RUNS_SQL = "SELECT run_id, status, reason, hostname FROM runs LEFT JOIN sessions USING (session_id) WHERE"

_NAMED = "starts_with(run_id, ?) AND ends_with(run_id, ?) ORDER BY run_id <> ?, run_id LIMIT 4"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRun:
    """A run that the user named, or its part on one of its nodes.

    Attributes:
        status: as in the view `runs` or `run_parts`; None: not in the store yet, as right after its launch.
        node_uuid: the node; empty: any node that has it.
    """

    run_id: str
    status: str | None = None
    reason: str | None = None
    hostname: str | None = None
    node_uuid: str = ""

    @property
    def node(self) -> str:
        """The hostname of its node, or the UUID where the hostname is unknown."""
        return self.hostname or self.node_uuid

    @property
    def has_ended(self) -> bool:
        """True if its status in the store is final."""
        return self.status in FINAL_STATUSES


def find_run(ask: Ask, name: str, *, otherwise: str = "") -> NamedRun:
    """Return the run with this identity, or with the only identity that begins like this, and ends like what is after …

    `otherwise` names, for the error, another way to ask for several runs.
    Raises MisuseError: the name is empty, or several runs begin with it.
    """
    if not name:
        raise MisuseError("the name of a run is empty; `collector runs` lists the runs")
    begin, _, end = name.partition(CUT)
    found = [NamedRun(**row) for row in ask(f"{RUNS_SQL} {_NAMED}", [begin, end, name])]
    if len(found) > 1 and found[0].run_id != name:
        several = ", ".join(run.run_id for run in found[:3])
        listed = f"several runs begin with {name}: {several}{', …' if len(found) > 3 else ''}"
        is_workload = all(run.run_id.rpartition("-")[0] == name for run in found)
        remedy = f"`collector runs --workload {name}` lists them" if is_workload else "give more of its name"
        raise MisuseError(f"{listed}; {remedy}{otherwise}")
    return found[0] if found else NamedRun(run_id=name)


def read_started_run(ask: Ask, name: str) -> dict[str, Any]:
    """Return the row of a run that has started in the view `runs`.

    Raises MisuseError: there is no such run, or it has not started.
    """
    found = ask("SELECT * FROM runs WHERE run_id = ?", [find_run(ask, name).run_id])
    if not found or found[0]["started_at"] is None:
        reason = "has not started" if found else "is not in the store"
        raise MisuseError(f"the run {name} {reason}; `collector runs` lists the runs")
    return dict(found[0])


def find_run_ids(ask: Ask, names: Sequence[str]) -> list[str]:
    """Return the identities of runs, each once; a name that is the beginning of none stays.

    Raises MisuseError: a name is empty, or several runs begin with it.
    """
    return list(dict.fromkeys(find_run(ask, name).run_id for name in names))
