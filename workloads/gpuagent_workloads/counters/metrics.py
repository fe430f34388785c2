"""The metrics for ncu, and the figures in its answer.

ncu counts the threads' instructions on the CUDA cores, and "math ops" in the tensor cores, of which an addition and a
multiplication are two: a matrix product of known size gave exactly its model FLOPs on an H200.
"""

import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuagent_workloads.errors import WorkloadError

# Floating-point operations of each instruction.
_OPERATIONS = {"add": 1, "mul": 1, "fma": 2}

_CORE_PREFIX = "smsp__sass_thread_inst_executed_op_"

# By the letter in the names of instructions.
_WIDTHS = {"h": "fp16", "f": "fp32", "d": "fp64"}

_CORE_FLOPS = {
    f"{_CORE_PREFIX}{width}{operation}_pred_on.sum": flops
    for width in _WIDTHS
    for operation, flops in _OPERATIONS.items()
}

DRAM_METRICS = ("dram__bytes_read.sum", "dram__bytes_write.sum")

# Not those that sum up only dense or only sparse products: each is contained in one without that ending.
_TENSOR_METRIC = re.compile(r"\bsm__ops_path_tensor_src_(?!\w*sparsity)((?:bf|fp|tf)[0-9]+)\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One counter of one kernel."""

    # ncu's number of the kernel's launch.
    kernel: str
    metric: str
    value: float


def flops_metrics(available: str) -> list[str]:
    """Return the metrics of executed FLOPs among those that `ncu --query-metrics` printed for this GPU."""
    tensor = sorted({found[0] for found in _TENSOR_METRIC.finditer(available)})
    return [*_CORE_FLOPS, *(f"{name}.sum" for name in tensor)]


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


def core_flops(readings: Sequence[Reading]) -> int:
    """Return the floating-point operations that CUDA cores executed."""
    return round(sum(_CORE_FLOPS.get(reading.metric, 0) * reading.value for reading in readings))


def tensor_flops(readings: Sequence[Reading]) -> int:
    """Return the floating-point operations that tensor cores executed."""
    return round(sum(reading.value for reading in readings if _TENSOR_METRIC.match(reading.metric)))


def flops_by_precision(readings: Sequence[Reading]) -> dict[str, int]:
    """Return the executed operations of each arithmetic: `fp32` of CUDA cores, `tensor_tf32` of tensor cores, ….

    Arithmetic that nothing was executed in is left out.
    """
    by_precision: Counter[str] = Counter()
    for reading in readings:
        if reading.metric in _CORE_FLOPS:
            width = reading.metric.removeprefix(_CORE_PREFIX)[0]
            by_precision[_WIDTHS[width]] += round(_CORE_FLOPS[reading.metric] * reading.value)
        elif found := _TENSOR_METRIC.match(reading.metric):
            by_precision[f"tensor_{found[1]}"] += round(reading.value)
    return dict(+by_precision)


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
