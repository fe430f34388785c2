"""`make verify-gpu`: GPM's activity beside what known products and copies do, and energy in two ways."""

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from gpuagent.sources.support.nvml_api import Nvml, open_nvml

# Of each load: the driver's buffer of power holds 2.4 s.
SECONDS = 2.0

SIDE = 8192
COPY_BYTES = 1 << 30

_SM_ACTIVE, _TENSOR_ACTIVE, _TENSOR_FP64_ACTIVE, _DRAM_ACTIVE, _FP32_ACTIVE = 2, 5, 6, 10, 12
_METRICS = (_SM_ACTIVE, _TENSOR_ACTIVE, _TENSOR_FP64_ACTIVE, _DRAM_ACTIVE, _FP32_ACTIVE)
# H200 datasheet.
_DRAM_PEAK_BYTES_PER_SECOND = 4.8e12
_CLOCK_SM, _POWER_SAMPLES = 1, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    """A square product of matrices: which of GPM's figures shows it, and what Hopper's pipe can do of it.

    `flops_per_clock` is of one multiprocessor: H100 and H200's datasheet peak by multiprocessors and boost clock.
    """

    name: str
    dtype: torch.dtype
    tf32: bool
    metric: int
    figure: str
    flops_per_clock: int


_PRODUCTS = (
    _Product(
        name="BF16 products",
        dtype=torch.bfloat16,
        tf32=False,
        metric=_TENSOR_ACTIVE,
        figure="tensor pipe active",
        flops_per_clock=4096,
    ),
    _Product(
        name="TF32 products",
        dtype=torch.float32,
        tf32=True,
        metric=_TENSOR_ACTIVE,
        figure="tensor pipe active",
        flops_per_clock=2048,
    ),
    _Product(
        name="FP64 products",
        dtype=torch.float64,
        tf32=False,
        metric=_TENSOR_FP64_ACTIVE,
        figure="tensor pipe active, FP64",
        flops_per_clock=256,
    ),
    _Product(
        name="FP32 products",
        dtype=torch.float32,
        tf32=False,
        metric=_FP32_ACTIVE,
        figure="FP32 pipe active",
        flops_per_clock=256,
    ),
)


@dataclass(slots=True)
class _Seen:
    """NVML's readings during a load: GPM's figures by metric in percent, and SM clocks in MHz."""

    figures: dict[int, list[float]] = field(default_factory=lambda: {metric: [] for metric in _METRICS})
    clocks_mhz: list[float] = field(default_factory=list)

    def mean(self, metric: int) -> float:
        """Return the mean of a metric over the load."""
        return statistics.mean(self.figures[metric])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """One load: how often a second its work was done, what NVML saw, and energy in joules by counter and by power."""

    pieces_per_second: float
    seen: _Seen
    counted_joules: float
    integrated_joules: float


def main() -> None:
    """Load the GPU in several ways, leave it idle, and print what GPM, NVML and the clock say."""
    nvml = open_nvml()
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    print("| load | figure | gpuagent | known | ours by known |\n|---|---|---|---|---|")
    for product in _PRODUCTS:
        _multiply(nvml, uuid, product)
    source = torch.randn(COPY_BYTES // 4, device="cuda")
    target = torch.empty_like(source)
    load = _loaded(nvml, uuid, lambda: target.copy_(source))
    known = 100 * 2 * COPY_BYTES * load.pieces_per_second / _DRAM_PEAK_BYTES_PER_SECOND
    _row("copy", "DRAM active", load.seen.mean(_DRAM_ACTIVE), known, "%")
    _energy_row("copy", load)
    idle = _loaded(nvml, uuid, lambda: time.sleep(0.1))
    _row("nothing", "SM active", idle.seen.mean(_SM_ACTIVE), 0.0, "%")
    _row("nothing", "tensor pipe active", idle.seen.mean(_TENSOR_ACTIVE), 0.0, "%")


def _multiply(nvml: Nvml, uuid: str, product: _Product) -> None:
    """Print a pipe's activity beside FLOPs by the peak at the clock that was seen."""
    torch.backends.cuda.matmul.allow_tf32 = product.tf32
    left, right = (torch.randn(SIDE, SIDE, device="cuda", dtype=product.dtype) for _ in range(2))
    load = _loaded(nvml, uuid, lambda: left @ right)
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    peak_flops = multiprocessors * product.flops_per_clock * statistics.mean(load.seen.clocks_mhz) * 1e6
    known = 100 * 2 * SIDE**3 * load.pieces_per_second / peak_flops
    _row(product.name, product.figure, load.seen.mean(product.metric), known, "%")
    _energy_row(product.name, load)


def _row(load: str, what: str, ours: float, known: float, unit: str) -> None:
    ratio = f"{ours / known:.3f}" if known else "–"
    print(f"| {load} | {what} | {ours:.4g} {unit} | {known:.4g} {unit} | {ratio} |", flush=True)


def _energy_row(name: str, load: _Load) -> None:
    _row(name, "energy: power every 20 ms, and the counter", load.integrated_joules, load.counted_joules, "J")


def _loaded(nvml: Nvml, uuid: str, work: Callable[[], object]) -> _Load:
    """Work for a while on a warm GPU."""
    work()
    torch.cuda.synchronize()
    seen = _Seen()
    counted_joules = -_energy_joules(nvml, uuid)
    began_unix_nano, began_seconds, pieces = time.time_ns(), time.perf_counter(), 0
    # The first figure would be of the time since the load before.
    nvml.gpm(uuid, _METRICS, time.monotonic_ns())
    with _watched(nvml, uuid, seen):
        while time.perf_counter() - began_seconds < SECONDS:
            work()
            pieces += 1
            torch.cuda.synchronize()
    seconds, ended_unix_nano = time.perf_counter() - began_seconds, time.time_ns()
    counted_joules += _energy_joules(nvml, uuid)
    return _Load(
        pieces_per_second=pieces / seconds,
        seen=seen,
        counted_joules=counted_joules,
        integrated_joules=_integrated_joules(nvml, uuid, began_unix_nano // 1000, ended_unix_nano // 1000),
    )


@contextmanager
def _watched(nvml: Nvml, uuid: str, seen: _Seen) -> Iterator[None]:
    """Read GPM every 200 ms and the clock every 20 ms while the context lasts."""
    over = threading.Event()

    def watch() -> None:
        ticks = 0
        while not over.wait(0.02):
            seen.clocks_mhz.append(nvml.ask("nvmlDeviceGetClockInfo", uuid, _CLOCK_SM))
            ticks += 1
            if ticks % 10 == 0:
                for metric, figure in (nvml.gpm(uuid, _METRICS, time.monotonic_ns()) or {}).items():
                    if figure is not None:
                        seen.figures[metric].append(figure)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _energy_joules(nvml: Nvml, uuid: str) -> float:
    return float(nvml.ask("nvmlDeviceGetTotalEnergyConsumption", uuid)) / 1000


def _integrated_joules(nvml: Nvml, uuid: str, from_micros: int, to_micros: int) -> float:
    """Return power over time, from the driver's buffer, which holds the last 2.4 s."""
    samples = [(at, milliwatts) for at, milliwatts in nvml.ask("nvmlDeviceGetSamples", uuid, _POWER_SAMPLES, 0)]
    within = [milliwatts / 1000 for at, milliwatts in samples if from_micros <= at <= to_micros]
    mean_watts: float = statistics.mean(within)
    return mean_watts * (to_micros - from_micros) / 1e6


if __name__ == "__main__":
    main()
