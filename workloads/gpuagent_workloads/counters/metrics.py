"""The metrics for ncu, and the figures in its answer.

ncu counts the threads' instructions on the CUDA cores, and "math ops" in the tensor cores, of which an addition and a
multiplication are two: a matrix product of known size gave exactly its model FLOPs on an H200.
"""

import csv
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuagent_workloads.errors import WorkloadError

# Floating-point operations of each instruction.
_OPERATIONS = {"add": 1, "mul": 1, "fma": 2}

# The letter of each precision in their names.
PRECISIONS: Mapping[str, str] = {"fp16": "h", "fp32": "f", "fp64": "d"}

_CORE_FLOPS = {
    precision: {
        f"smsp__sass_thread_inst_executed_op_{letter}{operation}_pred_on.sum": flops
        for operation, flops in _OPERATIONS.items()
    }
    for precision, letter in PRECISIONS.items()
}

DRAM_METRICS = ("dram__bytes_read.sum", "dram__bytes_write.sum")

# Not those that sum up only dense or only sparse products: each is contained in one without that ending.
_TENSOR_METRIC = re.compile(r"\bsm__ops_path_tensor_src_(?:bf|fp|tf)(?!\w*sparsity)\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One counter of one kernel."""

    # ncu's number of the kernel's launch.
    kernel: str
    metric: str
    value: float


def flops_metrics(available: str) -> list[str]:
    """Return the metrics of executed FLOPs among those that `ncu --query-metrics` printed for this GPU."""
    tensor = sorted(set(_TENSOR_METRIC.findall(available)))
    return [*(name for names in _CORE_FLOPS.values() for name in names), *(f"{name}.sum" for name in tensor)]


def parse(lines: Iterable[str]) -> list[Reading]:
    """Return the readings in the output of `ncu --csv --print-units base`, between messages or not.

    Raises:
        WorkloadError: there are none, with ncu's own reason if it gave one, or one of them is not a number.
    """
    kept = list(lines)
    table = csv.DictReader(line for line in kept if not line.startswith("=="))
    try:
        readings = [reading for row in table if (reading := _reading(row)) is not None]
    except csv.Error as error:
        raise WorkloadError(f"the output of ncu cannot be read: {error}") from error
    if not readings:
        raise WorkloadError(f"ncu counted nothing: {_reason(kept)}")
    return readings


def core_flops(readings: Sequence[Reading], precision: str) -> int:
    """Return the floating-point operations of a precision that CUDA cores executed."""
    return round(sum(_CORE_FLOPS[precision].get(reading.metric, 0) * reading.value for reading in readings))


def tensor_flops(readings: Sequence[Reading]) -> int:
    """Return the floating-point operations that tensor cores executed."""
    return round(sum(reading.value for reading in readings if _TENSOR_METRIC.match(reading.metric)))


def dram_bytes(readings: Sequence[Reading]) -> int:
    """Return the bytes that moved between the GPU and its memory, both directions.

    Raises:
        WorkloadError: one of the directions was not counted.
    """
    if not {reading.metric for reading in readings}.issuperset(DRAM_METRICS):
        raise WorkloadError("ncu counts only one direction of this GPU's memory")
    return round(sum(reading.value for reading in readings if reading.metric in DRAM_METRICS))


def _reading(row: dict[str, str]) -> Reading | None:
    try:
        kernel, metric, value = row["ID"], row["Metric Name"], float(row["Metric Value"].replace(",", ""))
    except (KeyError, ValueError, AttributeError):
        # Not a row of the table, or a counter that this GPU does not have ("n/a").
        return None
    if not math.isfinite(value):
        # Without it the sum would be too low, unnoticed.
        raise WorkloadError(f"ncu could not count {metric} of kernel {kernel}: it reports {value}")
    return Reading(kernel=kernel, metric=metric, value=value)


def _reason(lines: Sequence[str]) -> str:
    errors = [line.removeprefix("==ERROR==").strip() for line in lines if line.startswith("==ERROR==")]
    if any("ERR_NVGPUCTRPERM" in error for error in errors):
        return (
            "only root may read performance counters here (RmProfilingAdminOnly); "
            "an administrator can allow it with NVreg_RestrictProfilingToAdminUsers=0"
        )
    return errors[0] if errors else "it gave no reason"
