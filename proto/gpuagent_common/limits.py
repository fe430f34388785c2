"""Limits of a run on its node, and their changes during the run."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuagent_common.errors import MisuseError

if TYPE_CHECKING:  # what a collector asks of limits needs no messages
    from gpuagent_proto.v1.run_pb2 import RunSpec

# Of what an agent accepts and a collector stores: labels of a run, and characters of a name.
MAX_LABELS = 64
MAX_NAME_CHARACTERS = 1000

# Runs of a node that have not ended. A launch or a command queues at most 10,000 at once.
MAX_OPEN_RUNS = 50_000

# Powers of 1024, as in container engines and Slurm.
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

# As Docker and Podman read it, except a bare number.
_MEMORY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(?:([KMGT])I?B?|B)", re.IGNORECASE)
_CHANGE = re.compile(r"cpus=(\d+(?:\.\d+)?)@(\d+(?:\.\d+)?)s")

# The least that Docker and Podman accept.
_LEAST_CPUS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuChange:
    """A new CPU limit, from `after_seconds` after the start of the run's first process."""

    cpus: float
    after_seconds: float

    def __str__(self) -> str:
        return f"cpus={_plain(self.cpus)}@{_plain(self.after_seconds)}s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a run.

    Attributes:
        cpus: CPU time per wall time, in CPUs; None: all of the node.
        memory_bytes: anonymous memory and page cache together; None: all of the node.
        changes: later limits of the CPUs, in the order of their times.
    """

    cpus: float | None = None
    memory_bytes: int | None = None
    changes: tuple[CpuChange, ...] = ()

    def __str__(self) -> str:
        """Return a text that identifies the limits; `none` for no limit."""
        parts = [f"cpus={_plain(self.cpus)}"] if self.cpus is not None else []
        parts += [f"memory={memory_text(self.memory_bytes)}"] if self.memory_bytes is not None else []
        return " ".join([*parts, *map(str, self.changes)]) or "none"

    def write(self, spec: "RunSpec") -> None:
        """Write the limits to a run's spec."""
        spec.cpus, spec.memory_bytes = self.cpus or 0, self.memory_bytes or 0
        for change in self.changes:
            spec.cpu_changes.add(cpus=change.cpus, after_seconds=change.after_seconds)


NO_LIMITS = Limits()


def make_limits(cpus: float | None, memory: str | None, changes: Iterable[str]) -> Limits:
    """Return the limits of the user's options.

    Raises MisuseError: one is malformed, or two changes have the same time.
    """
    parsed = tuple(sorted(map(parse_change, changes), key=lambda change: change.after_seconds))
    if len({change.after_seconds for change in parsed}) < len(parsed):
        raise MisuseError("two changes of the CPUs have the same time; remove one")
    return Limits(
        cpus=None if cpus is None else check_cpus(float(cpus)),
        memory_bytes=None if memory is None else parse_memory(memory),
        changes=parsed,
    )


def read_limits(spec: "RunSpec") -> Limits:
    """Return the limits of a run's spec. Raises MisuseError where they are impossible."""
    changes = tuple(
        CpuChange(cpus=check_cpus(change.cpus), after_seconds=change.after_seconds) for change in spec.cpu_changes
    )
    times = [change.after_seconds for change in changes]
    if times != sorted(set(times)) or not all(0 <= seconds < float("inf") for seconds in times):
        raise MisuseError("changes of the CPUs must have increasing times")
    cpus = check_cpus(spec.cpus) if spec.cpus else None
    return Limits(cpus=cpus, memory_bytes=spec.memory_bytes or None, changes=changes)


def parse_memory(text: str) -> int:
    """Return the bytes of a text such as 8G, 1.5g or 512MB, in powers of 1024.

    Raises MisuseError: it has another form. A bare number does too: engines read bytes, Slurm megabytes.
    """
    match = _MEMORY.fullmatch(text)
    memory_bytes = int(float(match[1]) * _UNITS.get((match[2] or "").upper(), 1)) if match else 0
    if not memory_bytes:
        raise MisuseError(f"memory takes a number with K, M, G or T, such as 8G; not {text!r}")
    return memory_bytes


def memory_text(memory_bytes: int) -> str:
    """Return `memory_bytes` in the largest unit that needs no fraction, as `parse_memory` reads it."""
    for unit, factor in reversed(_UNITS.items()):
        if memory_bytes % factor == 0:
            return f"{memory_bytes // factor}{unit}"
    return f"{memory_bytes}B"


def parse_change(text: str) -> CpuChange:
    """Return the change of a text such as cpus=8@60s. Raises MisuseError where it has another form."""
    match = _CHANGE.fullmatch(text)
    if not match:
        raise MisuseError(f"a change takes cpus=NUMBER@SECONDSs, such as cpus=8@60s; not {text!r}")
    return CpuChange(cpus=check_cpus(float(match[1])), after_seconds=float(match[2]))


def _plain(number: float) -> str:
    """Return a number without an exponent, which `parse_change` would not read."""
    return f"{number:.6f}".rstrip("0").rstrip(".")


def check_cpus(cpus: float) -> float:
    """Return a number of CPUs. Raises MisuseError where it is too small, or not finite."""
    if not _LEAST_CPUS <= cpus < float("inf"):
        raise MisuseError(f"cpus must be {_LEAST_CPUS:g} or more, not {cpus:g}")
    return cpus
