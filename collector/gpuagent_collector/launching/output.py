"""What runs wrote, as it is printed."""

import sys
from collections.abc import Mapping

from gpuagent_collector.launching.names import RunPart
from gpuagent_collector.output.text import harmless
from gpuagent_collector.query.ask import Ask

_SQL = """
SELECT name, arg_max(detail->>'tail', time) AS tail FROM run_events
WHERE run_id = ? AND event = 'output' AND node_id IN (SELECT node_id FROM nodes WHERE ? IN ('', node_uuid))
GROUP BY name ORDER BY name DESC
""".strip()


def stored_output(ask: Ask, part: RunPart) -> Mapping[str, str]:
    """Return the end of each stream that the store has of a run on one node: stdout, stderr."""
    return {row["name"]: row["tail"] for row in ask(_SQL, [part.run_id, part.node_uuid]) if row["tail"]}


class Printer:
    """Prints the streams of a run to ours: to a terminal harmlessly and line by line, anywhere else as they are."""

    def __init__(self) -> None:
        self._ours = {"stdout": sys.stdout, "stderr": sys.stderr}
        self._is_in_line: set[str] = set()

    def print(self, stream: str, text: str) -> None:
        """Print a piece of what the run wrote to `stream`."""
        ours = self._ours.get(stream, sys.stderr)
        ours.write(_for_terminal(text) if ours.isatty() else text)
        ours.flush()
        (self._is_in_line.discard if text.endswith("\n") else self._is_in_line.add)(stream)

    def close(self) -> None:
        """End a line that the run did not, where a prompt comes after it."""
        for stream in self._is_in_line:
            if self._ours[stream].isatty():
                self._ours[stream].write("\n")


def _for_terminal(text: str) -> str:
    """Return lines as a terminal may have them; one that is to be written over is a line of its own."""
    return "\n".join(map(_line, (f"{text}\n" if text.endswith("\r") else text).split("\n")))


def _line(line: str) -> str:
    """Return a line without what does something to a terminal, and of a progress bar only the last state."""
    return harmless(line.rstrip("\r").rpartition("\r")[2].expandtabs())
