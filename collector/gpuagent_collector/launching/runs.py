"""Runs that the user names: the nodes they are on, their output."""

import sys
from collections.abc import Mapping, Sequence

from gpuagent_collector.query.ask import Ask
from gpuagent_collector.query.named_runs import RUNS_SQL, NamedRun
from gpuagent_common.errors import MisuseError
from gpuagent_common.text import harmless

_OPEN = "experiment = ? AND status IN ('queued', 'running') ORDER BY queued_at DESC"

_PARTS_SQL = """
SELECT coalesce(node_uuid, '') AS node_uuid, hostname, status FROM run_parts LEFT JOIN sessions USING (session_id)
WHERE run_id = ? AND run_parts.node_id IS NOT NULL ORDER BY hostname, sessions.node_uuid
""".strip()

_OUTPUT_SQL = """
SELECT name, arg_max(detail->>'tail', time) AS tail FROM run_events
WHERE run_id = ? AND event = 'output' AND node_id IN (SELECT node_id FROM nodes WHERE ? IN ('', node_uuid))
GROUP BY name ORDER BY name DESC
""".strip()


def open_runs(ask: Ask, experiment: str) -> list[NamedRun]:
    """Return the running and queued runs of an experiment, last queued first, so that none starts meanwhile."""
    return [NamedRun(**row) for row in ask(f"{RUNS_SQL} {_OPEN}", [experiment])]


def find_parts(ask: Ask, run: NamedRun, node: str | None) -> list[NamedRun]:
    """Return the parts of a run on its nodes, or on the node with this name.

    Raises MisuseError: the run is not on that node.
    """
    parts = [NamedRun(run_id=run.run_id, **row) for row in ask(_PARTS_SQL, [run.run_id])]
    if node is None:
        return parts or [NamedRun(run_id=run.run_id, status=run.status)]
    found = [part for part in parts if node in (part.hostname, (part.hostname or "").partition(".")[0], part.node_uuid)]
    if not found:
        where = f"it is on {_list_nodes(parts)}" if parts else "the store knows no node of it"
        raise MisuseError(f"{run.run_id} is on no node {node}; {where}")
    return found


def get_only_part(parts: Sequence[NamedRun]) -> NamedRun:
    """Return the only part. Raises MisuseError: there are several."""
    if len(parts) > 1:
        raise MisuseError(f"{parts[0].run_id} is on {_list_nodes(parts)}; follow one: --node {parts[0].node}")
    return parts[0]


def _list_nodes(parts: Sequence[NamedRun]) -> str:
    return ", ".join(part.node for part in parts)


def read_stored_output(ask: Ask, part: NamedRun) -> Mapping[str, str]:
    """Return the stored end of each stream of a run on one node: stdout, stderr."""
    return {row["name"]: row["tail"] for row in ask(_OUTPUT_SQL, [part.run_id, part.node_uuid]) if row["tail"]}


class Printer:
    """A printer of a run's streams to ours: escaped and by lines on a terminal, unchanged anywhere else."""

    def __init__(self) -> None:
        self._ours = {"stdout": sys.stdout, "stderr": sys.stderr}
        self._is_in_line: set[str] = set()

    def print(self, stream: str, text: str) -> None:
        """Print a piece of the run's output on `stream`."""
        ours = self._ours.get(stream, sys.stderr)
        if ours.isatty():
            # A line that ends by \r would be written over: here it is a line of its own.
            lines = (f"{text}\n" if text.endswith("\r") else text).split("\n")
            # Of a progress bar only the last state.
            ours.write("\n".join(harmless(line.rstrip("\r").rpartition("\r")[2].expandtabs()) for line in lines))
        else:
            ours.write(text)
        ours.flush()
        (self._is_in_line.discard if text.endswith("\n") else self._is_in_line.add)(stream)

    def close(self) -> None:
        """End an unfinished line on a terminal, before the prompt."""
        for stream in self._is_in_line:
            if self._ours[stream].isatty():
                self._ours[stream].write("\n")
