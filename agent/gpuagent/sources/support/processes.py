"""The processes of runs, found in /proc."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuagent.clock import Instant
from gpuagent.sources.source import SourceContext
from gpuagent.sources.support.files import OptionalFile

# Processes are looked for when the kernel has numbered a new one, and at least this often: not every kernel tells.
_RESCAN_NANO = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """What /proc/PID/stat tells of a process."""

    state: str
    parent_pid: int
    session: int
    own_cpu_ticks: int
    # CPU time of the descendants that have ended and been waited for.
    children_cpu_ticks: int
    threads: int

    @property
    def has_ended(self) -> bool:
        """Whether it is only there until somebody waits for it."""
        return self.state in "ZX"


def parse_process_stat(text: str) -> ProcessStat:
    """Return what a /proc/PID/stat tells; the program's name may itself hold spaces and brackets.

    Raises:
        ValueError: this is none.
    """
    fields = text.rpartition(")")[2].split()
    if len(fields) < 18:
        raise ValueError("it has too few fields")
    numbers = [int(field) for field in fields[1:18]]
    return ProcessStat(
        state=fields[0],
        parent_pid=numbers[0],
        session=numbers[2],
        own_cpu_ticks=numbers[10] + numbers[11],
        children_cpu_ticks=numbers[12] + numbers[13],
        threads=numbers[16],
    )


def read_process_file(proc: Path, pid: int | str, name: str) -> str | None:
    """Return the text of /proc/PID/name, or None where the process is gone or not ours to look at."""
    try:
        descriptor = os.open(f"{proc}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, 64 * 1024).decode(errors="replace")
    except OSError:
        return None
    finally:
        os.close(descriptor)


def read_process_stat(proc: Path, pid: int) -> ProcessStat | None:
    """Return what the kernel tells of a process, or None where it is gone."""
    text = read_process_file(proc, pid, "stat")
    try:
        return None if text is None else parse_process_stat(text)
    except ValueError:
        return None


def process_numbers(proc: Path) -> set[int]:
    """Return the numbers of all processes that can be seen."""
    return {int(name) for name in os.listdir(proc) if name.isdecimal()}  # noqa: PTH208 - three times as fast


class RunProcesses:
    """Which processes belong to which active run.

    A run's processes are the descendants of its supervisor and what shares its session; once known, a process stays
    with its run even when its parent has ended. New processes are found by looking only at numbers that were not there
    before, and only when the last number that the kernel gave away (in /proc/loadavg) has changed. The other way,
    /proc/PID/task/*/children, would need a read for each thread, and is missing in many kernels.
    """

    def __init__(self, context: SourceContext) -> None:
        self._proc = context.proc
        self._runs = context.runs
        self._loadavg = OptionalFile(context.proc / "loadavg")
        self._supervisors: Sequence[tuple[str, int]] = ()
        self._seen: dict[int, ProcessStat] = {}
        self._run_of: dict[int, str] = {}
        self._last_given: str | None = None
        self._scanned_nano = 0

    def run_of(self, now: Instant) -> dict[int, str]:
        """Return the run of each process that belongs to one; the supervisors are not among them."""
        supervisors = self._runs.processes()
        if not supervisors:
            self._forget()
            return {}
        changed = supervisors != self._supervisors
        self._supervisors = supervisors
        if self._is_scan_due(now) or changed:
            self._scan(adopt_all=changed)
        return self._run_of

    def _forget(self) -> None:
        self._supervisors = ()
        self._seen, self._run_of = {}, {}

    def _is_scan_due(self, now: Instant) -> bool:
        loadavg = self._loadavg.read()
        last_given = loadavg.rpartition(" ")[2] if loadavg else None
        if last_given == self._last_given and now.monotonic_nano - self._scanned_nano < _RESCAN_NANO:
            return False
        self._last_given, self._scanned_nano = last_given, now.monotonic_nano
        return True

    def _scan(self, *, adopt_all: bool) -> None:
        alive = process_numbers(self._proc)
        new = alive - self._seen.keys()
        seen = {pid: stat for pid, stat in self._seen.items() if pid in alive}
        seen.update((pid, stat) for pid in new if (stat := read_process_stat(self._proc, pid)))
        active = {run_id for run_id, _ in self._supervisors}
        self._seen = seen
        self._run_of = {pid: run_id for pid, run_id in self._run_of.items() if pid in seen and run_id in active}
        self._adopt(seen if adopt_all else new & seen.keys())

    def _adopt(self, pids: Iterable[int]) -> None:
        run_by_supervisor = {pid: run_id for run_id, pid in self._supervisors}
        for pid in pids:
            if pid not in run_by_supervisor:
                run_id = self._find_run(pid, run_by_supervisor)
                if run_id is not None:
                    self._run_of[pid] = run_id

    def _find_run(self, pid: int, run_by_supervisor: dict[int, str]) -> str | None:
        ancestors = {pid}
        while (stat := self._seen.get(pid)) is not None:
            for relative in (stat.parent_pid, stat.session):
                run_id = run_by_supervisor.get(relative) or self._run_of.get(relative)
                if run_id is not None:
                    return run_id
            pid = stat.parent_pid
            if pid in ancestors:
                break
            ancestors.add(pid)
        return None

    def close(self) -> None:
        """Close /proc/loadavg."""
        self._loadavg.close()
