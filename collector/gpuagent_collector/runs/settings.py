"""The settings of runs that an experiment can choose."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from gpuagent_collector.runs.cells import Cell
from gpuagent_collector.runs.data import Facts
from gpuagent_common.errors import MisuseError
from gpuagent_common.limits import parse_memory

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a cell that an experiment can choose; None: not limited, not given."""

    environment: str
    image: str | None
    interference: str
    cpus: float | None
    memory_bytes: int | None
    threads: str | None
    options: str = ""

    @property
    def kind(self) -> str:
        """The environment without a scheduler before it."""
        return self.environment.rpartition("+")[2]

    def differs_settably(self, other: "Settings") -> bool:
        """Return whether an experiment can set a fact in which they differ."""
        threads = self.threads != other.threads and None not in (self.threads, other.threads)
        mine, theirs = (
            (each.cpus, each.memory_bytes, each.interference, each.environment, each.image) for each in (self, other)
        )
        return threads or mine != theirs


def settings_of(cell: Cell, facts: Facts) -> Settings:
    """Return the commonest settings of a side's runs."""
    counts = Counter((run.environment, run.image, run.interference, run.limits) for run in cell.runs)
    environment, image, interference, limits = counts.most_common(1)[0][0]
    runs = [run for run in cell.runs if run.environment == environment]
    sessions = [session for run in runs for session in facts.sessions.get(run.run_id, [])]
    given = dict(part.split("=", 1) for part in (limits or "").split() if "=" in part and "@" not in part)
    # A limit of the agent's surroundings, such as a pod's, limits the run too.
    cpus = [_read(float, given["cpus"])] if "cpus" in given else [s["cpu_limit_cores"] for s in sessions]
    memory = [session["memory_limit_bytes"] for session in sessions]
    threads = [facts.texts.get(run.run_id, {}).get("threads") for run in runs]
    return Settings(
        environment=environment or "bare",
        image=image,
        interference=interference or "none",
        cpus=_commonest(cpus),
        memory_bytes=_read(parse_memory, given["memory"]) if "memory" in given else _commonest(memory),
        threads=_commonest(threads),
    )


def _read(parse: Callable[[str], _Number], text: str) -> _Number | None:
    """Return a limit that an agent reported; None: its text is none of this version."""
    try:
        return parse(text)
    except (ValueError, MisuseError):
        return None


def _commonest(values: Sequence[Any]) -> Any:
    return Counter(values).most_common(1)[0][0] if values else None
