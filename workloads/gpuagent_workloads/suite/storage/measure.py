"""Measurement of a file system: one large file, small files, a data loader, and a checkpoint."""

import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.storage import MOST_FILE_BYTES, Config, size_within
from gpuagent_workloads.suite.storage.files import (
    BLOCK_BYTES,
    cached_share,
    drop_from_cache,
    make_noise,
    read_directly,
    read_file,
    sync,
    write_file,
    write_small_files,
)
from gpuagent_workloads.suite.storage.scratch import find_file_system, require_space, scratch_folder

# Rounds end with this time, whatever their number.
_BUDGET_SECONDS = 5.0

# A read is cold if less of the file is in the page cache, and warm if more is.
_COLD, _WARM = 0.01, 0.99

_BATCH_FILES = 32
_MOST_WORKERS = 4
_TENSORS = 16

# Their files are in memory alone, and O_DIRECT there reads from memory too.
_IN_MEMORY = ("tmpfs", "ramfs", "hugetlbfs", "rootfs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The sizes of a run."""

    large_bytes: int
    files: int
    file_bytes: int
    workers: int
    repeats: int

    @property
    def small_bytes(self) -> int:
        """Bytes of all small files, each with the rest of its last block."""
        return self.files * (self.file_bytes + 4096)


def measure(config: Config, reporter: Reporter) -> None:
    """Run the workload from its folder to the checkpoint, and delete all files.

    Raises:
        MisuseError: the folder is missing, cannot be written to, or has too little free space.
        WorkloadError: the disk became full or failed, or a file came back with other contents.
    """
    extent = Extent(
        large_bytes=size_within("bytes", config.bytes, 1 << 20, 64 << 30) // BLOCK_BYTES * BLOCK_BYTES,
        files=config.files,
        file_bytes=size_within("file-bytes", config.file_bytes, 1 << 10, MOST_FILE_BYTES),
        workers=config.workers or min(_MOST_WORKERS, len(os.sched_getaffinity(0))),
        repeats=config.repeats,
    )
    parent = Path(config.folder) if config.folder else reporter.directory or Path.cwd()
    reporter.result("torch_version", torch.__version__)
    with scratch_folder(parent) as folder:
        found = find_file_system(folder)
        reporter.result("file_system", found.kind or "unknown")
        reporter.result("file_system_source", found.source or "unknown")
        require_space(folder, max(extent.large_bytes, extent.small_bytes), extent.files)
        reporter.phase("measure")
        try:
            for part in (_measure_large_file, _measure_small_files, _measure_checkpoint):
                part(extent, folder, found.kind, reporter)
                reporter.flush()
        except (OSError, RuntimeError) as error:
            # torch raises RuntimeError where it cannot write, and brings workers' errors with their traceback.
            cause = getattr(error, "strerror", None) or (str(error).strip() or repr(error)).splitlines()[-1]
            remedy = "all are deleted: free space, or give less --bytes or --files"
            raise WorkloadError(f"the files in {parent} failed: {cause}; {remedy}") from error
        reporter.phase("teardown")


def _measure_large_file(extent: Extent, folder: Path, kind: str | None, reporter: Reporter) -> None:
    """Report writing and reading of one file in blocks of 1 MiB."""
    path, size, noise = folder / "large", extent.large_bytes, make_noise()

    seconds = _time(lambda: write_file(path, size, noise), extent.repeats, before=lambda: path.unlink(missing_ok=True))
    _report_rate("sequential_write", size, seconds, reporter)
    cold = _why_not_cold([path], kind)
    reporter.result(
        "cold_reads", cold or "yes: the node's page cache is dropped; caches of servers and devices are not"
    )
    if cold is None:
        _report_rate("sequential_read_cold", size, _time(lambda: _read(path, size), extent.repeats, [path]), reporter)
    _report_direct(path, size, kind, extent.repeats, reporter)
    read_file(path)
    share = cached_share([path])
    if share is not None and share < _WARM:
        reporter.result("warm_reads", f"no: only {share:.0%} of the large file fit into the page cache")
    else:
        reporter.result(
            "warm_reads", "yes" if share is not None else "unknown: the kernel does not show what is cached"
        )
        _report_rate("sequential_read_warm", size, _time(lambda: _read(path, size), extent.repeats), reporter)
    path.unlink()


def _report_direct(path: Path, size: int, kind: str | None, repeats: int, reporter: Reporter) -> None:
    if kind in _IN_MEMORY:
        reporter.result("direct_reads", f"no: {kind} keeps files in memory")
        return
    try:
        read_directly(path)
    except OSError as error:
        reporter.result("direct_reads", f"no: {kind or 'the file system'} rejects O_DIRECT ({error.strerror})")
        return
    reporter.result("direct_reads", "yes")
    _report_rate("sequential_read_direct", size, _time(lambda: read_directly(path), repeats), reporter)


def _measure_small_files(extent: Extent, folder: Path, kind: str | None, reporter: Reporter) -> None:
    """Report writing and reading of small files in random order, by one process and by a data loader."""
    noise = make_noise()
    home, size = folder / "small", extent.files * extent.file_bytes
    began_seconds = time.perf_counter()
    paths = write_small_files(home, extent.files, extent.file_bytes, noise)
    reporter.result("small_file_write_seconds", (time.perf_counter() - began_seconds) / extent.files, unit="s")
    random.Random(1).shuffle(paths)  # noqa: S311 - an order, no secret

    def read_all() -> None:
        for path in paths:
            _read(path, extent.file_bytes)

    is_cold = _why_not_cold(paths, kind) is None
    if is_cold:
        seconds = _time(read_all, extent.repeats, paths)
        reporter.result("small_file_read_cold_seconds", seconds / extent.files, unit="s")
    read_all()
    is_warm = _fits_into_cache(paths)
    if is_warm:
        reporter.result("small_file_read_warm_seconds", _time(read_all, extent.repeats) / extent.files, unit="s")
    loader = DataLoader(
        Files(paths), batch_size=_BATCH_FILES, num_workers=extent.workers, persistent_workers=True, prefetch_factor=2
    )

    def load_all() -> None:
        if sum(batch.numel() for batch in loader) != size:
            raise WorkloadError("the data loader brought other bytes than were written: the file system is faulty")

    # Starts the workers.
    load_all()
    reporter.result("loader_workers", extent.workers)
    if is_cold:
        _report_rate("loader_cold", size, _time(load_all, extent.repeats, paths), reporter)
    if is_warm:
        load_all()
        _report_rate("loader_warm", size, _time(load_all, extent.repeats), reporter)
    for path in paths:
        path.unlink()


class Files(Dataset[torch.Tensor]):
    """Files as tensors of bytes."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(map(str, paths))

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(np.fromfile(self._paths[index], dtype=np.uint8))


def _measure_checkpoint(extent: Extent, folder: Path, kind: str | None, reporter: Reporter) -> None:
    """Report saving tensors, until they are on the disk under their name, and loading them again."""
    count = extent.large_bytes // _TENSORS // 4
    state = {f"weight{number}": torch.randn(count) for number in range(_TENSORS)}
    path, size = folder / "checkpoint", _TENSORS * count * 4

    def save() -> None:
        unfinished = path.with_suffix(".part")
        torch.save(state, unfinished)
        sync(unfinished)
        unfinished.replace(path)
        sync(folder)

    def load() -> dict[str, torch.Tensor]:
        loaded: dict[str, torch.Tensor] = torch.load(path, weights_only=True)
        return loaded

    seconds = _time(save, extent.repeats, before=lambda: path.unlink(missing_ok=True))
    _report_rate("checkpoint_write", size, seconds, reporter)
    if _why_not_cold([path], kind) is None:
        _report_rate("checkpoint_read_cold", size, _time(load, extent.repeats, [path]), reporter)
    loaded = load()
    if any(not torch.equal(loaded[name], tensor) for name, tensor in state.items()):
        raise WorkloadError("the checkpoint came back with other values: the file system is faulty")
    del loaded
    if _fits_into_cache([path]):
        _report_rate("checkpoint_read_warm", size, _time(load, extent.repeats), reporter)


def _fits_into_cache(paths: Sequence[Path]) -> bool:
    """Return whether files that were just read are in the page cache, or may be where the kernel does not show it."""
    share = cached_share(paths)
    return share is None or share >= _WARM


def _why_not_cold(paths: Sequence[Path], kind: str | None) -> str | None:
    """Return the reason why reads cannot be cold; None: they can, since the kernel has just dropped the pages."""
    if kind in _IN_MEMORY:
        return f"no: {kind} keeps files in memory"
    drop_from_cache(paths)
    share = cached_share(paths)
    if share is None:
        return "no: the kernel does not show what is cached"
    return f"no: {share:.0%} of the file stays in the page cache" if share > _COLD else None


def _time(
    work: Callable[[], object], repeats: int, cold: Sequence[Path] = (), before: Callable[[], object] = lambda: None
) -> float:
    """Return the median seconds of `work` over the rounds that fit into the budget, but of at least one.

    Args:
        work: the timed function.
        repeats: the most rounds.
        cold: files that are dropped from the page cache before each round.
        before: called before each round, untimed.
    """
    times: list[float] = []
    until_seconds = time.perf_counter() + _BUDGET_SECONDS
    while not times or (len(times) < repeats and time.perf_counter() + times[-1] < until_seconds):
        drop_from_cache(cold)
        before()
        began_seconds = time.perf_counter()
        work()
        times.append(time.perf_counter() - began_seconds)
    return median(times)


def _read(path: Path, size_bytes: int) -> None:
    if read_file(path) != size_bytes:
        raise WorkloadError(f"a file came back shorter than its {size_bytes} bytes: the file system is faulty")


def _report_rate(name: str, size_bytes: int, seconds: float, reporter: Reporter) -> None:
    reporter.result(f"{name}_bytes_per_second", size_bytes / seconds, unit="bytes/s")
