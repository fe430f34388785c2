"""Storage: real files on the test's disk and on a small tmpfs, too little space, and ends of every kind."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import torch

from gpuagent.runs.processes import SupervisedProcess
from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.storage import Config, scratch
from gpuagent_workloads.suite.storage import measure as module
from gpuagent_workloads.suite.storage.files import (
    BLOCK_BYTES,
    cached_share,
    drop_from_cache,
    read_directly,
    read_file,
    write_file,
    write_small_files,
)
from gpuagent_workloads.suite.storage.scratch import FileSystem, find_file_system, scratch_folder
from tests.unit.workloads.runs import assert_gone, of_kind, phases_of, reported, results_of, run_reporting

LITTLE = {"bytes": "2M", "files": 20, "file_bytes": "4K", "workers": 1, "repeats": 1}
WARM = {
    "sequential_write_bytes_per_second": "bytes/s",
    "sequential_read_warm_bytes_per_second": "bytes/s",
    "small_file_write_seconds": "s",
    "small_file_read_warm_seconds": "s",
    "loader_warm_bytes_per_second": "bytes/s",
    "checkpoint_write_bytes_per_second": "bytes/s",
    "checkpoint_read_warm_bytes_per_second": "bytes/s",
}
COLD = {
    "sequential_read_cold_bytes_per_second": "bytes/s",
    "small_file_read_cold_seconds": "s",
    "loader_cold_bytes_per_second": "bytes/s",
    "checkpoint_read_cold_bytes_per_second": "bytes/s",
}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,nr_inodes=60", "none", folder], check=False)
    if mounted.returncode:
        pytest.skip("needs the right to mount")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_disk_has_cold_and_warm_figures_and_keeps_no_file(tmp_path: Path) -> None:
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in LITTLE.items()]
    events = run_reporting(tmp_path, "storage", *arguments)
    assert phases_of(events) == ["setup", "measure", "teardown", "end"]
    results = results_of(events)
    units = {event["name"]: event["unit"] for event in of_kind(events, "result") if "unit" in event}
    expected = WARM
    if results["cold_reads"].startswith("yes"):
        expected = expected | COLD
    if results["direct_reads"] == "yes":
        expected = expected | {"sequential_read_direct_bytes_per_second": "bytes/s"}
    assert units == expected
    assert all(results[name] > 0 for name in units)
    # In a chroot the kernel shows no mount that the folder is in.
    assert results["file_system"] == (kind_by_stat(tmp_path) if is_in_a_mount(tmp_path) else "unknown")
    # Without a folder, files are made in the run directory, and deleted.
    assert [path.name for path in tmp_path.iterdir()] == ["events.0.0.jsonl"]


def is_in_a_mount(folder: Path) -> bool:
    """Whether a mount point that this process sees is the folder or above it."""
    points = {Path(mount.mountpoint) for mount in psutil.disk_partitions(all=True)}
    return not points.isdisjoint([folder, *folder.parents])


def kind_by_stat(folder: Path) -> str:
    """The type of a file system by coreutils, which call ext4 by its family."""
    done = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True)
    kind = done.stdout.strip()
    return {"ext2/ext3": "ext4", "overlayfs": "overlay"}.get(kind, kind)


def test_memory_is_never_called_cold(small_disk: Path) -> None:
    reporter = Reporter(None)
    module.measure(Config(folder=str(small_disk), **LITTLE), reporter)  # type: ignore[arg-type]
    results = reported(reporter)
    assert {result.name: result.unit for result in reporter.results if result.unit} == WARM
    assert results["file_system"] == "tmpfs"
    assert results["cold_reads"] == results["direct_reads"] == "no: tmpfs keeps files in memory"
    assert results["warm_reads"] == "yes"
    assert list(small_disk.iterdir()) == []


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"bytes": "5M"}, r"disk has 8,\d{3},\d{3} bytes free, and the files would take 5,242,880, more than half"),
        ({"files": 40}, r"disk has room for \d+ more files, and 40 are more than half: give less --files"),
    ],
)
def test_too_little_space_is_misuse_before_anything_is_written(
    parameters: dict[str, object], words: str, small_disk: Path
) -> None:
    with pytest.raises(MisuseError, match=words):
        module.measure(Config(folder=str(small_disk), **{**LITTLE, **parameters}), Reporter(None))  # type: ignore[arg-type]
    assert list(small_disk.iterdir()) == []


def test_a_disk_that_becomes_full_fails_in_words_and_is_emptied(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if another program had taken the space after the check.
    monkeypatch.setattr(module, "require_space", lambda *_: None)
    with pytest.raises(WorkloadError, match="disk failed: No space left on device; all are deleted: free space, or "):
        module.measure(Config(folder=str(small_disk), **{**LITTLE, "bytes": "16M"}), Reporter(None))  # type: ignore[arg-type]
    assert list(small_disk.iterdir()) == []


def test_a_disk_that_becomes_full_during_a_checkpoint_fails_in_words_too(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("require_space", "_measure_large_file", "_measure_small_files"):
        monkeypatch.setattr(module, name, lambda *_: None)
    # torch raises RuntimeError here.
    with pytest.raises(WorkloadError, match=r"disk failed: .+; all are deleted: free space, or give less --bytes or "):
        module.measure(Config(folder=str(small_disk), **{**LITTLE, "bytes": "16M"}), Reporter(None))  # type: ignore[arg-type]
    assert list(small_disk.iterdir()) == []


class Unreadable(module.Files):
    """Files on a disk that fails."""

    def __getitem__(self, index: int) -> torch.Tensor:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_worker_that_cannot_read_fails_the_run_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_measure_large_file", lambda *_: None)
    monkeypatch.setattr(module, "Files", Unreadable)
    with pytest.raises(WorkloadError, match=r"failed: OSError: \[Errno 5\] Input/output error; all") as failed:
        module.measure(Config(folder=str(tmp_path), **LITTLE), Reporter(None))  # type: ignore[arg-type]
    assert "\n" not in str(failed.value)
    assert list(tmp_path.iterdir()) == []


HOLD = (
    "import signal, sys\n"
    "from pathlib import Path\n"
    "from gpuagent_workloads.suite.storage.scratch import scratch_folder\n"
    "with scratch_folder(Path(sys.argv[1])) as folder:\n"
    "    (folder / 'small').mkdir()\n"
    "    (folder / 'small' / 'file').write_bytes(b'x' * 4096)\n"
    "    print(flush=True)\n"
    "    signal.pause()\n"
)


@contextmanager
def holding(parent: Path) -> Iterator[tuple["subprocess.Popen[str]", list[psutil.Process]]]:
    """Start a process with files in `parent`; yield it with its guard."""
    command = [sys.executable, "-c", HOLD, str(parent)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process, psutil.Process(process.pid).children()


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_files_are_deleted_when_the_processes_are_stopped(stop: signal.Signals, tmp_path: Path) -> None:
    with holding(tmp_path) as (process, guards):
        assert list(tmp_path.glob("*/small/file"))
        # The whole group, as a shell does it.
        os.killpg(process.pid, stop)
    assert_gone(guards)
    assert list(tmp_path.iterdir()) == []


FILL_AND_DIE = (
    "import os, signal, sys\n"
    "from pathlib import Path\n"
    "from gpuagent_workloads.suite.storage.scratch import scratch_folder\n"
    "with scratch_folder(Path(sys.argv[1])) as folder:\n"
    "    for number in range(3000): (folder / f'{number}').touch()\n"
    "    Path(sys.argv[1], 'written').touch()\n"
    "    os.kill(os.getpid(), signal.SIGKILL)\n"
)


def test_the_supervisor_lets_the_files_of_a_killed_run_be_deleted(tmp_path: Path) -> None:
    run, files = tmp_path / "run", tmp_path / "files"
    run.mkdir()
    files.mkdir()
    process = SupervisedProcess(
        [sys.executable, "-c", FILL_AND_DIE, str(files)],
        run_directory=run,
        environment=dict(os.environ),
        working_directory=None,
        grace_seconds=60.0,
    )
    assert process.wait() == -signal.SIGKILL
    assert [path.name for path in files.iterdir()] == ["written"]


def test_the_next_run_deletes_what_is_left_but_nothing_that_is_in_use(tmp_path: Path) -> None:
    with holding(tmp_path) as (process, guards):
        (used,) = tmp_path.iterdir()
        with scratch_folder(tmp_path) as own:
            assert {used, own} == set(tmp_path.iterdir())
        for guard in guards:
            guard.kill()
        process.kill()
    assert list(tmp_path.iterdir()) == [used]
    with scratch_folder(tmp_path) as own:
        assert list(tmp_path.iterdir()) == [own]
    assert list(tmp_path.iterdir()) == []


def test_files_of_other_nodes_stay_since_their_locks_may_not_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(scratch, "_BOOT_ID", tmp_path / "missing")
        other, lock = scratch._claim(tmp_path)
    assert lock is not None
    os.close(lock)
    with scratch_folder(tmp_path) as own:
        assert {other, own} == set(tmp_path.iterdir())


def test_a_folder_that_another_run_deletes_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_folder, locked = scratch._lock, []

    def lock_late(folder: Path, *, wait: bool = False) -> int | None:
        # The first is swept before it is opened, the second between opening and locking.
        locked.append(folder)
        if len(locked) == 1:
            folder.rmdir()
        lock = lock_folder(folder, wait=wait)
        if len(locked) == 2:
            folder.rmdir()
        return lock

    monkeypatch.setattr(scratch, "_lock", lock_late)
    with scratch_folder(tmp_path) as own:
        assert own == locked[2]
        assert list(tmp_path.iterdir()) == [own]


def test_an_error_within_deletes_the_files_too(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), scratch_folder(tmp_path) as folder:
        (folder / "file").touch()
        1 / 0  # noqa: B018
    assert list(tmp_path.iterdir()) == []


FORK_AND_FAIL = (
    "import os, signal, sys\n"
    "from pathlib import Path\n"
    "from gpuagent_workloads.suite.storage.scratch import scratch_folder\n"
    "with scratch_folder(Path(sys.argv[1])):\n"
    "    if os.fork() == 0: signal.pause()\n"
    "    raise SystemExit(7)\n"
)


def test_an_error_does_not_wait_for_the_workers_of_a_data_loader(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", FORK_AND_FAIL, str(tmp_path)], start_new_session=True)
    try:
        assert process.wait() == 7
    finally:
        # The forked worker, and this process if it still waits.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "words"), [("missing", "No such file or directory"), ("file", "Not a directory")])
def test_a_folder_that_cannot_be_used_is_misuse(name: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MisuseError, match=f"--folder .*{name}: {words}; name a folder that you may write to"):
        module.measure(Config(folder=str(tmp_path / name), **LITTLE), Reporter(None))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"bytes": "1K"}, "--bytes must be from 1,048,576 to 68,719,476,736 bytes, such as 1024K, not 1K"),
        ({"bytes": "lots"}, "--bytes must be from .*, not lots"),
        ({"file_bytes": "64M"}, "--file-bytes must be from 1,024 to 33,554,432 bytes"),
        ({"files": 0}, "--files must be at least 1 and at most 100000, not 0"),
        ({"repeats": 0}, "--repeats must be at least 1"),
    ],
)
def test_wrong_parameters_are_misuse_in_words(parameters: dict[str, object], words: str) -> None:
    with pytest.raises(MisuseError, match=words):
        Config(**parameters)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, BLOCK_BYTES, 3 * BLOCK_BYTES + 5])
def test_what_is_written_is_the_noise_and_is_read_to_its_end(size: int, tmp_path: Path) -> None:
    noise = os.urandom(2 * BLOCK_BYTES)
    write_file(tmp_path / "file", size, noise)
    assert (tmp_path / "file").read_bytes() == (2 * noise)[:size]
    assert read_file(tmp_path / "file") == size


def test_small_files_have_their_size_and_differ(tmp_path: Path) -> None:
    paths = write_small_files(tmp_path, 1002, 3, os.urandom(1 << 20))
    assert len(set(paths)) == len({path.read_bytes() for path in paths[:100]}) + 902 == 1002
    assert {path.stat().st_size for path in paths} == {3}
    assert {path.parent.name for path in paths} == {"0", "1"}


def test_the_kernel_shows_what_is_cached(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_file(path, 2 * BLOCK_BYTES, os.urandom(BLOCK_BYTES))
    read_file(path)
    if cached_share([path]) is None:
        pytest.skip("the kernel does not show what is cached")
    assert cached_share([path]) == 1
    if find_file_system(tmp_path).kind not in ("ext4", "xfs"):
        pytest.skip("not every file system drops pages")
    drop_from_cache([path])
    assert cached_share([path]) == 0
    # A direct read leaves nothing in the cache.
    assert read_directly(path) == 2 * BLOCK_BYTES
    assert cached_share([path]) == 0


MOUNTS = (
    "22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
    "40 22 0:31 / {folder}/a\\040b rw shared:9 - nfs4 server:/ex\\040port rw\n"
    "41 22 0:32 / {folder}/a rw - lustre 10.0.0.1@tcp:/scratch rw\n"
    "42 22 0:33 / {folder}/a rw - tmpfs none rw\n"
    "damaged\n"
)


@pytest.mark.parametrize(
    ("folder", "found"),
    [
        ("a b/c", FileSystem(kind="nfs4", source="server:/ex port")),
        ("a", FileSystem(kind="tmpfs", source="none")),
        ("ab", FileSystem(kind="ext4", source="/dev/vda")),
    ],
)
def test_the_file_system_is_that_of_the_longest_and_last_mount(folder: str, found: FileSystem, tmp_path: Path) -> None:
    assert find_file_system(tmp_path / folder, MOUNTS.format(folder=tmp_path.resolve())) == found


def test_an_unknown_file_system_is_none() -> None:
    assert find_file_system(Path("/x"), "") == FileSystem(kind=None, source=None)
