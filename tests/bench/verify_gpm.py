"""`make verify-gpu`: GPM's activity beside what a known product and a known copy do, and energy in two ways."""

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from gpuagent.sources.support.nvml_api import Nvml, open_nvml

SECONDS = 2.0
"""Of each load: the driver's buffer of power holds 2.4 s."""

SIDE = 8192
COPY_BYTES = 1 << 30

_SM_ACTIVE, _TENSOR_ACTIVE, _DRAM_ACTIVE = 2, 5, 10
_FLOPS_PER_CLOCK_AND_SM = 4096
"""Of Hopper's tensor cores in BF16, dense: its peak by multiprocessors and boost clock."""
_DRAM_PEAK_BYTES_PER_SECOND = 4.8e12
"""H200 datasheet."""
_CLOCK_SM, _POWER_SAMPLES = 1, 0


def main() -> None:
    """Load the GPU in two ways, leave it idle, and print what GPM, NVML and the clock say."""
    nvml = open_nvml()
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    left, right = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    source = torch.randn(COPY_BYTES // 4, device="cuda")
    target = torch.empty_like(source)

    product_seconds, gpm, clock_mhz, joules = _loaded(nvml, uuid, lambda: left @ right)
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    peak = multiprocessors * _FLOPS_PER_CLOCK_AND_SM * clock_mhz * 1e6
    _print("BF16 product, tensor pipe active", gpm[_TENSOR_ACTIVE], 100 * 2 * SIDE**3 / product_seconds / peak, "%")
    _print("the same: energy by counter, and by power every 20 ms", *joules, "J")
    copy_seconds, gpm, _, joules = _loaded(nvml, uuid, lambda: target.copy_(source))
    rate = 2 * COPY_BYTES / copy_seconds
    _print("copy, DRAM active", gpm[_DRAM_ACTIVE], 100 * rate / _DRAM_PEAK_BYTES_PER_SECOND, "%")
    _print("the same: energy by counter, and by power every 20 ms", *joules, "J")
    _, gpm, _, _ = _loaded(nvml, uuid, lambda: time.sleep(0.1))
    _print("idle, SM active", gpm[_SM_ACTIVE], 0.0, "%")


def _print(what: str, ours: float, known: float, unit: str) -> None:
    ratio = f", ratio {ours / known:.3f}" if known else ""
    print(f"{what}: {ours:.4g} and {known:.4g} {unit}{ratio}", flush=True)


def _loaded(
    nvml: Nvml, uuid: str, work: Callable[[], object]
) -> tuple[float, dict[int, float], float, tuple[float, float]]:
    """Work for a while; return seconds of one piece, GPM's figures, the SM clock in MHz, and energy by both ways."""
    work()
    torch.cuda.synchronize()
    figures: list[dict[int, float]] = []
    clocks: list[float] = []
    counted_joules = -_energy_joules(nvml, uuid)
    began_unix_nano, began_seconds, pieces = time.time_ns(), time.perf_counter(), 0
    with _watched(nvml, uuid, figures, clocks):
        while time.perf_counter() - began_seconds < SECONDS:
            work()
            pieces += 1
            torch.cuda.synchronize()
    seconds, ended_unix_nano = time.perf_counter() - began_seconds, time.time_ns()
    counted_joules += _energy_joules(nvml, uuid)
    middle = {metric: statistics.median(figure[metric] for figure in figures) for metric in figures[0]}
    integrated = _integrated_joules(nvml, uuid, began_unix_nano // 1000, ended_unix_nano // 1000)
    return seconds / pieces, middle, statistics.median(clocks), (counted_joules, integrated)


@contextmanager
def _watched(nvml: Nvml, uuid: str, figures: list[dict[int, float]], clocks: list[float]) -> Iterator[None]:
    """Read GPM and the clock every 200 ms while the context lasts."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            read = nvml.gpm(uuid, (_SM_ACTIVE, _TENSOR_ACTIVE, _DRAM_ACTIVE), time.monotonic_ns())
            if read is not None and None not in read.values():
                figures.append({metric: figure for metric, figure in read.items() if figure is not None})
                clocks.append(nvml.ask("nvmlDeviceGetClockInfo", uuid, _CLOCK_SM))

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
