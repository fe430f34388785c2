"""Processes in /proc: those of runs, and the meaning of their numbers in PID namespaces.

A process has a number in its own PID namespace and another in each one around that. /proc shows the numbers of the
namespace that it was mounted for, and in NSpid those from there inwards. So an agent in a container can translate with
the host's /proc. With its own /proc it learns nothing of the numbers outside.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from gpuagent.clock import Instant
from gpuagent.sources.source import ActiveRuns, SourceContext
from gpuagent.sources.support.files import PSUTIL_ERRORS, OptionalFile

# A scan follows each new process number of the kernel. Some kernels do not count them: the longest pauses of those that
# do, and of others.
_RESCAN_NANO = {True: 5_000_000_000, False: 1_000_000_000}

# PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h.
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """The used part of a /proc/PID/stat."""

    state: str
    parent_pid: int
    session: int
    own_cpu_ticks: int
    # CPU time of the descendants that have ended and been waited for.
    children_cpu_ticks: int
    threads: int

    @property
    def has_ended(self) -> bool:
        """Return whether it only waits for its parent to collect it."""
        return self.state in "ZX"


def parse_process_stat(text: str) -> ProcessStat:
    """Return the fields of a /proc/PID/stat; the program's name may itself hold spaces and brackets.

    Raises ValueError: this is another file.
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
    """Return the stat of a process, or None where it is gone. It is half as expensive as psutil's."""
    text = read_process_file(proc, pid, "stat")
    try:
        return None if text is None else parse_process_stat(text)
    except ValueError:
        return None


class RunProcesses:
    """The processes of each active run.

    A run's processes are the descendants of its supervisor and all that shares its session; a known process stays with
    its run even when its parent has ended. A scan reads only numbers that did not exist before, and only when the last
    number that the kernel assigned (in /proc/loadavg) has changed.
    psutil.Process.children() would read the stat of every process each time, and lose orphans.
    """

    def __init__(self, context: SourceContext) -> None:
        self._proc = context.proc
        self._runs = context.runs
        self._loadavg = OptionalFile(context.proc / "loadavg")
        self._supervisors: Sequence[tuple[str, int]] = ()
        self._seen: dict[int, ProcessStat] = {}
        self._run_of: dict[int, str] = {}
        self._last_assigned: str | None = None
        self._is_counted = False
        self._scanned_nano = 0

    def run_of(self, now: Instant) -> dict[int, str]:
        """Return the run of each process that belongs to one; supervisors are not among them."""
        supervisors = self._runs.processes()
        if not supervisors:
            self._supervisors, self._seen, self._run_of = (), {}, {}
            return {}
        changed = supervisors != self._supervisors
        self._supervisors = supervisors
        if self._is_scan_due(now) or changed:
            # Look at the new processes, and assign them to runs; after a change of runs at all.
            try:
                alive = set(psutil.pids())
            except PSUTIL_ERRORS:
                alive = set()
            new = alive - self._seen.keys()
            seen = {pid: stat for pid, stat in self._seen.items() if pid in alive}
            seen.update((pid, stat) for pid in new if (stat := read_process_stat(self._proc, pid)))
            run_by_supervisor = {pid: run_id for run_id, pid in self._supervisors}
            active = set(run_by_supervisor.values())
            self._seen = seen
            self._run_of = {pid: run_id for pid, run_id in self._run_of.items() if pid in seen and run_id in active}
            programs = self._runs.programs()
            self._run_of |= {
                pid: run_id for pid, run_id in run_by_supervisor.items() if pid in programs and pid in seen
            }
            for pid in (seen if changed else new & seen.keys()) - run_by_supervisor.keys():
                run_id = self._find_run(pid, run_by_supervisor)
                if run_id is not None:
                    self._run_of[pid] = run_id
        return self._run_of

    def _is_scan_due(self, now: Instant) -> bool:
        loadavg = self._loadavg.read()
        last_assigned = loadavg.rpartition(" ")[2] if loadavg else None
        is_new = last_assigned != self._last_assigned
        if not is_new and now.monotonic_nano - self._scanned_nano < _RESCAN_NANO[self._is_counted]:
            return False
        self._is_counted |= is_new and self._last_assigned is not None
        self._last_assigned, self._scanned_nano = last_assigned, now.monotonic_nano
        return True

    def _find_run(self, pid: int, run_by_supervisor: Mapping[int, str]) -> str | None:
        ancestors = {pid}
        while (stat := self._seen.get(pid)) is not None:
            for relative in (stat.parent_pid, stat.session):
                run_id = run_by_supervisor.get(relative) or self._run_of.get(relative)
                if run_id is not None:
                    return run_id
            pid = stat.parent_pid
            # Numbers that were reused during the scan can make a circle.
            if pid in ancestors:
                break
            ancestors.add(pid)
        return None

    def close(self) -> None:
        """Close /proc/loadavg."""
        self._loadavg.close()


def group_by_run(run_of: Mapping[int, str]) -> dict[str, list[int]]:
    """Return the processes of each run."""
    pids: dict[str, list[int]] = {}
    for pid, run_id in run_of.items():
        pids.setdefault(run_id, []).append(pid)
    return pids


@dataclass(frozen=True, slots=True, kw_only=True)
class PidView:
    """The agent's view of processes.

    Attributes:
        depth: the number of PID namespaces that the agent is below the one that /proc was mounted for; 0: in that one.
        of_host: whether /proc is the host's.
    """

    depth: int
    of_host: bool


def pid_view(proc: Path) -> PidView:
    """Return the agent's view of the processes in `proc`."""
    try:
        namespace = str((proc / "self/ns/pid").readlink())
    except OSError:
        return PidView(depth=0, of_host=False)
    # An unprivileged process cannot see which namespace /proc belongs to, but only the host's has kernel threads, of
    # which this is the first.
    has_kernel_threads = read_process_file(proc, 2, "comm") == "kthreadd\n"
    return PidView(
        depth=max(0, len(_read_status(proc, "self", "NSpid")) - 1),
        of_host=has_kernel_threads or namespace == _INITIAL_PID_NAMESPACE,
    )


def process_of(proc: Path, number: int) -> int | None:
    """Return the process that has the thread with this number, or None without one."""
    group = _read_status(proc, number, "Tgid")
    return group[0] if group else None


def number_at(proc: Path, pid: int, depth: int) -> int | None:
    """Return the number of a process in its namespace `depth` levels below that of `proc`; None: it is in none."""
    numbers = _read_status(proc, pid, "NSpid")
    return numbers[depth] if depth < len(numbers) else None


def _read_status(proc: Path, pid: int | str, name: str) -> Sequence[int]:
    """Return the numbers of a line of /proc/PID/status; none where the kernel (NSpid: before 4.1) has no such line."""
    text = read_process_file(proc, pid, "status") or ""
    lines = (line.split()[1:] for line in text.splitlines() if line.startswith(f"{name}:"))
    return tuple(map(int, next(lines, ())))


def translate_runs(context: SourceContext) -> SourceContext:
    """Return the context with its runs' supervisors by their numbers in `context.proc`."""
    depth = pid_view(context.proc).depth
    return replace(context, runs=Supervisors(context.proc, depth, context.runs)) if depth else context


class Supervisors:
    """The active runs' supervisors by their numbers in a /proc that belongs to a namespace around the agent's.

    They are the agent's children, which distinguishes them from processes of other containers with the same numbers.
    """

    def __init__(self, proc: Path, depth: int, runs: ActiveRuns) -> None:
        self._proc = proc
        self._depth = depth
        self._runs = runs
        self._found: Mapping[tuple[str, int], int | None] = {}

    @property
    def is_busy(self) -> bool:
        """Return whether a run is queued or under way."""
        return self._runs.is_busy

    def processes(self) -> Sequence[tuple[str, int]]:
        """Return (run_id, number in /proc) of each."""
        known, supervisors = self._found, self._runs.processes()
        self._found = {one: known[one] if one in known else self._find(one[1]) for one in supervisors}
        return [(run_id, number) for (run_id, _), number in self._found.items() if number is not None]

    def programs(self) -> Collection[int]:
        """Return none: a supervisor is no program."""
        return ()

    def _find(self, pid: int) -> int | None:
        try:
            children: Iterable[psutil.Process] = psutil.Process(int((self._proc / "self").readlink().name)).children()
        except PSUTIL_ERRORS:
            return None
        return next((child.pid for child in children if number_at(self._proc, child.pid, self._depth) == pid), None)
