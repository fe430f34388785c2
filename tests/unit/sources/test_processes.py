import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from gpuagent.clock import SystemClock
from gpuagent.sources.process_tree import ProcessPss, ProcessTree, RisingSum, parse_io, parse_statm
from gpuagent.sources.source import Source, SourceContext, Value
from gpuagent.sources.support.processes import RunProcesses, parse_process_stat
from tests.support.sources import OpenSource, Runs
from tests.support.trees import instant, plant

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Proc:
    """A /proc of made-up processes; the last number that the kernel assigned rises with each."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.start(50, parent=1)
        (root / "self").symlink_to("50")

    def start(
        self, pid: int, *, parent: int, session: int = 1, cpu: int = 0, inherited: int = 0, state: str = "S"
    ) -> None:
        """Start a process, or change what it has used."""
        plant(
            self.root,
            {
                f"{pid}/stat": f"{pid} (a (b) c) {state} {parent} 1 {session} 0 -1 0 0 0 0 0 "
                f"{cpu} 0 {inherited} 0 20 0 3 0 77{' 0' * 30}\n",
                f"{pid}/statm": "1000 10 4 1 0 5 0\n",
                f"{pid}/io": f"rchar: 1\nread_bytes: {cpu * 100}\nwrite_bytes: 0\ncancelled_write_bytes: 0\n",
                f"{pid}/smaps_rollup": "55a-7ff ---p 0 00:00 0 [rollup]\nRss: 9 kB\nPss:   2 kB\nPss_Anon: 1 kB\n",
                "loadavg": f"0.0 0.0 0.0 1/9 {pid}\n",
            },
        )

    def end(self, pid: int) -> None:
        for file in (self.root / str(pid)).iterdir():
            file.unlink()
        (self.root / str(pid)).rmdir()
        plant(self.root, {"loadavg": "0.0 0.0 0.0 1/9 999999\n"})


@pytest.fixture
def proc(tmp_path: Path, procfs: Callable[[Path], Path]) -> Proc:
    return Proc(procfs(tmp_path))


@pytest.fixture
def tree(proc: Proc, open_source: OpenSource) -> ProcessTree:
    """Open the source with a run whose supervisor is process 100."""
    proc.start(100, parent=1, session=100)
    return open_source(ProcessTree, proc=proc.root, runs=Runs(("run", 100)))


@pytest.fixture
def processes(proc: Proc) -> Iterator[RunProcesses]:
    """Open the processes of the same run."""
    proc.start(100, parent=1, session=100)
    with closing(RunProcesses(SourceContext(proc=proc.root, runs=Runs(("run", 100))))) as found:
        yield found


def row(source: Source, seconds: float) -> dict[str, Value]:
    (reading,) = source.read(instant(seconds))
    assert (reading.table, reading.key) == ("process_samples", "run")
    return dict(reading.values)


def test_a_stat_is_read_though_the_name_holds_brackets_and_spaces() -> None:
    stat = parse_process_stat("7 (my ) prog (x) R 3 2 1 0 -1 0 0 0 0 0 10 20 30 40 20 0 5 0 99 0\n")
    assert (stat.state, stat.parent_pid, stat.session, stat.threads) == ("R", 3, 1, 5)
    assert (stat.own_cpu_ticks, stat.children_cpu_ticks) == (30, 70)


def test_statm_and_io_are_in_bytes_and_a_rising_sum_keeps_absent_values() -> None:
    rising = RisingSum()
    assert [rising.follow(summed) for summed in (5, None, 3, 4)] == [5, None, 5, 6]
    assert parse_statm("1000 10 4 1 0 5 0\n") == (10 * PAGE, 6 * PAGE)
    assert parse_io("read_bytes: 4096\nwrite_bytes: 512\n") == (4096, 512)


def test_a_container_s_first_process_counts_where_it_is_the_program(proc: Proc, open_source: OpenSource) -> None:
    proc.start(100, parent=1, session=100, cpu=10)
    tree = open_source(ProcessTree, proc=proc.root, runs=Runs(("run", 100), programs=[100]))
    assert row(tree, 0)["processes"] == 1
    proc.start(100, parent=1, session=100, cpu=10 + TICKS)
    proc.start(101, parent=100, session=100)
    later = row(tree, 2)
    assert (later["processes"], later["cpu_cores"]) == (2, 0.5)


def test_a_run_is_the_descendants_of_its_supervisor_but_zombies(proc: Proc, tree: ProcessTree) -> None:
    proc.start(101, parent=100, session=100, cpu=50)
    proc.start(102, parent=101, session=102, cpu=7)
    proc.start(103, parent=1, session=5, cpu=1000)
    proc.start(104, parent=100, cpu=5, state="Z")
    assert row(tree, 0) == {
        "run_id": "run",
        "processes": 2,
        "threads": 6,
        "cpu_cores": None,
        "rss_bytes": 20 * PAGE,
        "anonymous_bytes": 12 * PAGE,
        "read_bytes_per_second": None,
        "write_bytes_per_second": None,
    }
    proc.start(101, parent=100, session=100, cpu=50 + TICKS)
    later = row(tree, 2)
    assert (later["cpu_cores"], later["read_bytes_per_second"]) == (0.5, TICKS * 100 / 2)


def test_cpu_time_of_an_ended_child_is_not_lost_nor_counted_twice(proc: Proc, tree: ProcessTree) -> None:
    proc.start(101, parent=100, cpu=10)
    proc.start(102, parent=101, cpu=4 * TICKS)
    row(tree, 0)
    proc.end(102)
    proc.start(101, parent=100, cpu=10, inherited=5 * TICKS)
    assert row(tree, 1)["cpu_cores"] == 1.0
    # The supervisor waits for the last one.
    proc.start(103, parent=100)
    proc.end(101)
    proc.start(100, parent=1, inherited=10 + 6 * TICKS)
    assert row(tree, 2)["cpu_cores"] == 1.0


def test_cpu_time_of_a_process_without_a_waiting_parent_is_never_negative(proc: Proc, tree: ProcessTree) -> None:
    proc.start(101, parent=100, cpu=TICKS)
    proc.start(102, parent=100, cpu=9 * TICKS)
    row(tree, 0)
    proc.end(102)
    assert row(tree, 1)["cpu_cores"] == 0.0
    proc.start(101, parent=100, cpu=2 * TICKS)
    assert row(tree, 2)["cpu_cores"] == 1.0


def test_more_cores_than_the_node_has_are_absent(proc: Proc, tree: ProcessTree) -> None:
    proc.start(101, parent=100, cpu=TICKS)
    row(tree, 0)
    proc.start(101, parent=100, cpu=TICKS, inherited=10**9)
    assert row(tree, 1)["cpu_cores"] is None
    proc.start(101, parent=100, cpu=2 * TICKS, inherited=10**9)
    assert row(tree, 2)["cpu_cores"] == 1.0


def test_io_is_absent_where_that_of_one_process_is_forbidden_and_all_without_runs(
    proc: Proc, tree: ProcessTree, open_source: OpenSource
) -> None:
    proc.start(101, parent=100)
    proc.start(102, parent=100)
    row(tree, 0)
    (proc.root / "102/io").unlink()
    later = row(tree, 1)
    assert (later["read_bytes_per_second"], later["cpu_cores"]) == (None, 0.0)
    assert list(open_source(ProcessTree, proc=proc.root, runs=Runs()).read(instant(0))) == []


def test_an_orphan_stays_with_its_run_as_do_all_of_the_supervisors_session(proc: Proc, processes: RunProcesses) -> None:
    proc.start(101, parent=100)
    proc.start(102, parent=101, session=102)
    assert processes.run_of(instant(0)) == {101: "run", 102: "run"}
    proc.end(101)
    proc.start(102, parent=1, session=102)
    proc.start(103, parent=1, session=102)
    assert processes.run_of(instant(1)) == {102: "run", 103: "run"}
    proc.start(104, parent=1, session=100)
    assert processes.run_of(instant(2)) == {102: "run", 103: "run", 104: "run"}


def test_a_later_run_gets_its_processes_that_started_before_it_was_known(proc: Proc) -> None:
    runs = Runs(("first", 100))
    processes = RunProcesses(SourceContext(proc=proc.root, runs=runs))
    for pid, parent in ((100, 1), (101, 100), (200, 1), (201, 200)):
        proc.start(pid, parent=parent)
    assert processes.run_of(instant(0)) == {101: "first"}
    runs.supervisors = (("first", 100), ("second", 200))
    assert processes.run_of(instant(0.1)) == {101: "first", 201: "second"}
    runs.supervisors = (("second", 200),)
    assert processes.run_of(instant(0.2)) == {201: "second"}
    processes.close()


def test_new_processes_are_found_where_the_kernel_does_not_number_them(proc: Proc, processes: RunProcesses) -> None:
    processes.run_of(instant(0))
    proc.start(101, parent=100)
    plant(proc.root, {"loadavg": "0.0 0.0 0.0 1/9 100\n"})
    assert processes.run_of(instant(0.5)) == {}
    assert processes.run_of(instant(1.5)) == {101: "run"}


def test_a_kernel_that_numbers_processes_is_not_asked_for_them_each_second(
    proc: Proc, processes: RunProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes.run_of(instant(0))
    proc.start(101, parent=100)
    processes.run_of(instant(0.5))
    scan = Mock(return_value=[100, 101])
    monkeypatch.setattr(psutil, "pids", scan)
    for seconds in (1.6, 2.7, 3.8, 4.9):
        assert processes.run_of(instant(seconds)) == {101: "run"}
    scan.assert_not_called()
    processes.run_of(instant(5.6))
    scan.assert_called_once()


def test_pss_is_of_all_processes_or_absent(proc: Proc, open_source: OpenSource) -> None:
    proc.start(100, parent=1)
    proc.start(101, parent=100)
    proc.start(102, parent=100)
    source = open_source(ProcessPss, proc=proc.root, runs=Runs(("run", 100)))
    assert row(source, 0) == {"run_id": "run", "pss_bytes": 4096}
    (proc.root / "102/smaps_rollup").unlink()
    assert list(source.read(instant(5))) == []
    proc.start(102, parent=100, state="Z")
    (proc.root / "102/smaps_rollup").write_text("")
    assert row(source, 10)["pss_bytes"] == 2048


_PROGRAM = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"],
                         stdin=subprocess.PIPE)
child.communicate(sys.stdin.read().encode())
"""


@pytest.fixture
def supervisor() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_PROGRAM!r}])"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "up\n"
        yield process


def test_real_processes_agree_with_psutil(supervisor: "subprocess.Popen[str]", open_source: OpenSource) -> None:
    runs = Runs(("run", supervisor.pid))
    children = psutil.Process(supervisor.pid).children(recursive=True)
    with closing(RunProcesses(SourceContext(runs=runs))) as processes:
        assert set(processes.run_of(SystemClock().now())) == {child.pid for child in children}
    values = row(open_source(ProcessTree, runs=runs), 0) | row(open_source(ProcessPss, runs=runs), 0)
    assert values["processes"] == len(children) == 2
    assert values["rss_bytes"] == sum(child.memory_info().rss for child in children)
    assert isinstance(values["pss_bytes"], int)
    assert 0 < values["pss_bytes"] <= sum(child.memory_info().rss for child in children)
