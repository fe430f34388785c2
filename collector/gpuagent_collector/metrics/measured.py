"""Definitions of the results of `collectives` and `storage`, which are figures of their runs by their own names."""

from collections.abc import Iterator

from gpuagent_collector.metrics.definitions import MetricDoc

_BYTES = "bytes/s"

# Name → unit, title, definition. OPERATION is all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send_recv;
# N the bytes of a message; I and J two ranks.
_COLLECTIVES = {
    "OPERATION_N_bytes_seconds": (
        "seconds",
        "Time of a collective",
        "of rounds of calls in a row the mean over calls and ranks, of the rounds the median; with torch's overhead",
    ),
    "OPERATION_N_bytes_algorithm_bytes_per_second": (
        _BYTES,
        "Algorithm bandwidth",
        "size / time; the size is that of the larger of a rank's two buffers",
    ),
    "OPERATION_N_bytes_bus_bytes_per_second": (
        _BYTES,
        "Bus bandwidth",
        "algorithm bandwidth × 2 (n − 1) / n of n ranks (all_reduce), (n − 1) / n (all_gather, reduce_scatter, "
        "all_to_all) or 1 (broadcast, send_recv), as nccl-tests' PERFORMANCE.md defines it",
    ),
    "pair_I_J_N_bytes_bus_bytes_per_second": (
        _BYTES,
        "Bus bandwidth of a pair",
        "size / time of an exchange of ranks I and J, in each direction, while all others are idle",
    ),
    "pairs_N_bytes_bus_bytes_per_second": (
        _BYTES,
        "Bus bandwidth of a rank's pairs",
        "of each rank, the median over its pairs",
    ),
}
_STORAGE = {
    "sequential_write_bytes_per_second": (
        _BYTES,
        "Sequential write",
        "one file in blocks of 1 MiB, until fsync is done",
    ),
    "sequential_read_cold_bytes_per_second": (
        _BYTES,
        "Sequential read, cold",
        "the same file, after mincore has shown that at most 1 % of it is in the page cache",
    ),
    "sequential_read_warm_bytes_per_second": (_BYTES, "Sequential read, warm", "the same file from the page cache"),
    "sequential_read_direct_bytes_per_second": (_BYTES, "Sequential read, direct", "the same file by O_DIRECT"),
    "small_file_write_seconds": ("seconds", "Small file, write", "creating files until all are on the disk, per file"),
    "small_file_read_cold_seconds": (
        "seconds",
        "Small file, cold read",
        "open, read and close in random order, per file; contents are not cached, directories and inodes are",
    ),
    "small_file_read_warm_seconds": ("seconds", "Small file, warm read", "the same from the page cache"),
    "loader_cold_bytes_per_second": (_BYTES, "Data loader, cold", "the small files through torch's DataLoader"),
    "loader_warm_bytes_per_second": (_BYTES, "Data loader, warm", "the same from the page cache"),
    "checkpoint_write_bytes_per_second": (
        _BYTES,
        "Checkpoint, write",
        "torch.save, fsync, rename, fsync of the folder",
    ),
    "checkpoint_read_cold_bytes_per_second": (_BYTES, "Checkpoint, cold read", "torch.load, nothing of it cached"),
    "checkpoint_read_warm_bytes_per_second": (_BYTES, "Checkpoint, warm read", "torch.load from the page cache"),
}


def define_measured() -> Iterator[MetricDoc]:
    """Yield every such result, in the order of the reports."""
    for workload, results in (("collectives", _COLLECTIVES), ("storage", _STORAGE)):
        for name, (unit, title, definition) in results.items():
            better = "lower" if unit == "seconds" else "higher"
            yield MetricDoc(
                metric=name,
                unit=unit,
                title=title,
                better=better,
                definition=definition,
                source=f"results of the workload {workload}",
            )
