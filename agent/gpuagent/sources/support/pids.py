"""What the number of a process means to the agent and in the /proc that the sources read.

A process has a number in its own PID namespace and another in each one around that. /proc tells the numbers of the
namespace that it was mounted for, and in NSpid those from there inwards. So an agent in a container that was given the
host's /proc can translate, and one with only its own /proc learns nothing of the numbers outside.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpuagent.sources.source import ActiveRuns, SourceContext
from gpuagent.sources.support.processes import process_numbers, read_process_file, read_process_stat

# PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h.
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"


@dataclass(frozen=True, slots=True, kw_only=True)
class PidView:
    """From where the agent sees processes.

    Attributes:
        depth: how many PID namespaces the agent is below the one that /proc was mounted for; 0: in that one.
        of_host: whether /proc is the host's.
    """

    depth: int
    of_host: bool


def pid_view(proc: Path) -> PidView:
    """Tell from where the processes in `proc` are seen."""
    try:
        namespace = str((proc / "self/ns/pid").readlink())
    except OSError:
        return PidView(depth=0, of_host=False)
    # /proc does not tell the unprivileged which namespace it belongs to, but only the host's has kernel threads, of
    # which this is the first.
    has_kernel_threads = read_process_file(proc, 2, "comm") == "kthreadd\n"
    return PidView(
        depth=max(0, len(_numbers(proc, "self")) - 1),
        of_host=has_kernel_threads or namespace == _INITIAL_PID_NAMESPACE,
    )


def process_of(proc: Path, number: int) -> int | None:
    """Return the process that has the thread with this number, or None where there is none."""
    group = _status_line(proc, number, "Tgid")
    return int(group[0]) if group else None


def number_at(proc: Path, pid: int, depth: int) -> int | None:
    """Return the number of a process in its namespace `depth` levels below that of `proc`; None: it is in none."""
    numbers = _numbers(proc, pid)
    return numbers[depth] if depth < len(numbers) else None


def _numbers(proc: Path, pid: int | str) -> Sequence[int]:
    """Return a process's numbers from the namespace of `proc` inwards; none where the kernel is older than 4.1."""
    return tuple(map(int, _status_line(proc, pid, "NSpid")))


def _status_line(proc: Path, pid: int | str, name: str) -> Sequence[str]:
    text = read_process_file(proc, pid, "status") or ""
    return next((line.split()[1:] for line in text.splitlines() if line.startswith(f"{name}:")), ())


def seen_in_proc(context: SourceContext) -> SourceContext:
    """Return the context with its runs' supervisors by their numbers in `context.proc`."""
    depth = pid_view(context.proc).depth
    return replace(context, runs=Supervisors(context.proc, depth, context.runs)) if depth else context


class Supervisors:
    """The active runs' supervisors by their numbers in a /proc that belongs to a namespace around the agent's.

    They are the agent's children, which sets them apart from processes of other containers with the same numbers.
    """

    def __init__(self, proc: Path, depth: int, runs: ActiveRuns) -> None:
        self._proc = proc
        self._depth = depth
        self._runs = runs
        self._found: Mapping[tuple[str, int], int | None] = {}

    def processes(self) -> Sequence[tuple[str, int]]:
        """Return (run_id, number in /proc) of each."""
        known, supervisors = self._found, self._runs.processes()
        self._found = {one: known[one] if one in known else self._find(one[1]) for one in supervisors}
        return [(run_id, number) for (run_id, _), number in self._found.items() if number is not None]

    def _find(self, pid: int) -> int | None:
        agent = int((self._proc / "self").readlink().name)
        for number in process_numbers(self._proc):
            stat = read_process_stat(self._proc, number)
            if stat is not None and stat.parent_pid == agent and number_at(self._proc, number, self._depth) == pid:
                return number
        return None
