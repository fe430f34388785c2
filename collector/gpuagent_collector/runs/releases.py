"""Versions and other facts that change on a node in the course of time, as they were for each run."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.data import Facts, Run

# Name of an event → column of sessions whose change it is.
_OF_SESSIONS = {
    "driver": "driver_version",
    "cuda": "cuda_driver_version",
    "kernel": "kernel",
    "os": "os",
    "reboot": "boot_id",
    "agent": "agent_version",
}
# Name of an event → result of the workload.
_OF_RESULTS = {"torch": "torch_version", "torch-cuda": "cuda_version", "cudnn": "cudnn_version", "nccl": "nccl_version"}

# Every event that agents see.
EVENTS = (*_OF_SESSIONS, *_OF_RESULTS, "bios", "gpu-firmware", "image")

# run_id → name of an event → value.
States = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A change of one fact on a node, seen first by a run."""

    event: str
    time: datetime | None
    before: str
    after: str

    @property
    def words(self) -> str:
        """The change in one line; the identities of boots say nothing."""
        return "reboot" if self.event == "reboot" else f"{self.event} {self.before} → {self.after}"


def load_states(ask: Ask, runs: Sequence[Run], facts: Facts) -> States:
    """Return what is known of each run's node and software."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    firmware: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for row in ask(_FIRMWARE):
        firmware[row["session_id"]].append((row["event"], row["version"]))
    for run in runs:
        of_run = found[run.run_id]
        for session in facts.sessions.get(run.run_id, []):
            for event, column in _OF_SESSIONS.items():
                if session[column] is not None:
                    of_run[event].add(str(session[column]))
            for event, version in firmware[session["session_id"]]:
                of_run[event].add(version)
        texts = facts.texts.get(run.run_id, {})
        for event, name in _OF_RESULTS.items():
            if name in texts:
                of_run[event].add(texts[name])
    for row in ask(_IMAGES, [[run.run_id for run in runs]]):
        found[row["run_id"]]["image"].add(row["image"])
    return {
        run_id: {event: ", ".join(sorted(values)) for event, values in of_one.items()}
        for run_id, of_one in found.items()
    }


def find_releases(runs: Iterable[Run], states: States) -> list[tuple[int, Release]]:
    """Return every change along runs of one node, oldest first, with the index of the first run after it.

    A run of which a fact is unknown neither shows nor hides a change.
    """
    last: dict[str, str] = {}
    found = []
    for index, run in enumerate(runs):
        for event, value in states.get(run.run_id, {}).items():
            if event in last and last[event] != value:
                release = Release(event=event, time=run.started_at, before=last[event], after=value)
                found.append((index, release))
            last[event] = value
    return found


_IMAGES = """
SELECT run_id, any_value(image || coalesce(' (' || left(digest, 19) || ')', '')) AS image
FROM images WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[]))) AND image IS NOT NULL GROUP BY run_id"""

_FIRMWARE = """
SELECT DISTINCT session_id, if(name = 'bios', 'bios', 'gpu-firmware') AS event, version
FROM session_firmware WHERE version IS NOT NULL"""
