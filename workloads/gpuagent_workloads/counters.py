"""Hardware counters of one training step, read by NVIDIA Nsight Compute (`ncu`): the executed work of the GPU.

They are counted in a process of its own after the timed run: ncu runs the kernels one after the other, and each as
often as its counters need, so its counts are right, and its times are not. Bytes of device memory, which few counters
need, are counted in a second process, where each kernel runs once and finds in the caches the data of those before it.

ncu counts the threads' instructions on the CUDA cores, and "math ops" in the tensor cores, of which an addition and a
multiplication are two: a matrix product of known size gave exactly its model FLOPs on an H200.
"""

import csv
import dataclasses
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuagent_common.errors import MisuseError
from gpuagent_common.own_module import module_command
from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import TrainingConfig
from gpuagent_workloads.workload import Workload, arguments_of

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

    Raises WorkloadError: there are none, with ncu's own reason if it gave one, or one of them is not a number.
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

    Raises WorkloadError: one of the directions was not counted.
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


_TIMEOUT_SECONDS = 1800.0

_MAX_QUOTED_CHARACTERS = 300

# The parameters of the counted run that differ: one step, and nothing beside it.
_COUNTED: dict[str, Any] = {
    "steps": 1,
    "warmup": 3,
    "epochs": None,
    "trace": False,
    "profile": False,
    "counters": "none",
}


@contextmanager
def counting(workload: Workload[Any], config: Any, reporter: Reporter) -> Iterator[None]:
    """Run one step of the workload again under ncu after the context, where --counters asks for it.

    Counters that cannot be read are reported as `counters_failed`: the timed run stays valid. Raises MisuseError: ncu
    is missing; nothing was run then.
    """
    if not (isinstance(config, TrainingConfig) and config.counters == "ncu"):
        yield
        return
    find_ncu()
    yield
    reporter.phase("counters")
    try:
        report_counters(workload, config, reporter)
    except WorkloadError as error:
        reporter.result("counters_failed", str(error))


def find_ncu() -> str:
    """Return the path of ncu. Raises MisuseError where it is not installed."""
    found = shutil.which("ncu")
    if found is None:
        raise MisuseError("--counters ncu: ncu is not on the PATH; it comes with NVIDIA Nsight Compute or CUDA")
    return found


def report_counters(workload: Workload[Any], config: TrainingConfig, reporter: Reporter) -> None:
    """Report the FLOPs that the GPU executes in a step, and the bytes that it moves to and from its memory.

    Raises WorkloadError: ncu cannot count here, for the reason given.
    """
    ncu = find_ncu()
    one_step = dataclasses.replace(config, **_COUNTED)
    program = [*module_command(sys.executable, "gpuagent_workloads"), "run", workload.name, *arguments_of(one_step)]
    flops = _count(ncu, flops_metrics(_output([ncu, "--query-metrics"])), program)
    by_precision = {precision: core_flops(flops, precision) for precision in PRECISIONS}
    reporter.result("executed_flops_per_step", sum(by_precision.values()) + tensor_flops(flops), unit="FLOP")
    for precision, number in by_precision.items():
        reporter.result(f"executed_{precision}_flops_per_step", number, unit="FLOP")
    reporter.result("executed_tensor_flops_per_step", tensor_flops(flops), unit="FLOP")
    reporter.result("dram_bytes_per_step", dram_bytes(_count(ncu, DRAM_METRICS, program)), unit="bytes")
    found = re.search(r"Version (\d+(?:\.\d+)+)", _output([ncu, "--version"]))
    version = found[1] if found else "of unknown version"
    reporter.result("counters_source", f"ncu {version}, one step of {len({r.kernel for r in flops})} kernels")


def _count(ncu: str, metrics: Sequence[str], program: Sequence[str]) -> list[Reading]:
    with tempfile.TemporaryDirectory(prefix="gpuagent-ncu-") as folder:
        log = Path(folder, "ncu.csv")
        options = ["--csv", "--print-units", "base", "--log-file", str(log), "--metrics", ",".join(metrics)]
        # The measured phase is marked for profilers. Clocks and caches stay as they are.
        options += ["--profile-from-start", "off", "--clock-control", "none", "--cache-control", "none"]
        printed = _output([ncu, *options, *program])
        if not log.is_file():
            last_line = (printed.strip().splitlines() or ["it printed nothing"])[-1]
            raise WorkloadError(f"ncu did not start: {last_line[:_MAX_QUOTED_CHARACTERS]!r}")
        return parse(log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True))


def _output(command: Sequence[str]) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "GPUAGENT_RUN_DIR"}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            printed, _ = process.communicate(timeout=_TIMEOUT_SECONDS)
        except BaseException as error:
            # Killing ncu alone would leave the profiled program running on the GPU.
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise WorkloadError(f"{Path(command[0]).name} took more than {_TIMEOUT_SECONDS:.0f} s") from error
            raise
    return printed
