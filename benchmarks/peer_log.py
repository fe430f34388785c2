"""Writes what another tool says of the GPUs ten times a second, as CSV: `python -m benchmarks.peer_log nvitop|torch`.

Columns: Unix time in seconds, UUID, utilisation in percent, memory used in bytes, power in watts, temperature in °C, SM
clock in MHz.
"""

import sys
import time
from collections.abc import Callable, Iterator

Row = tuple[str, float, float, float, float, float]


def _nvitop() -> Iterator[Row]:
    from nvitop import Device  # only where it is installed

    for device in Device.all():
        yield (
            device.uuid(),
            float(device.gpu_utilization()),
            float(device.memory_used()),
            device.power_usage() / 1000,
            float(device.temperature()),
            float(device.sm_clock()),
        )


def _torch() -> Iterator[Row]:
    import torch

    for index in range(torch.cuda.device_count()):
        free_bytes, total_bytes = torch.cuda.mem_get_info(index)
        yield (
            f"GPU-{torch.cuda.get_device_properties(index).uuid}",
            float(torch.cuda.utilization(index)),
            float(total_bytes - free_bytes),
            torch.cuda.power_draw(index) / 1000,
            float(torch.cuda.temperature(index)),
            float(torch.cuda.clock_rate(index)),
        )


READERS: dict[str, Callable[[], Iterator[Row]]] = {"nvitop": _nvitop, "torch": _torch}


def main() -> None:
    """Write until ended."""
    read = READERS[sys.argv[1]]
    while True:
        for row in read():
            print(time.time(), *row, sep=",", flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    main()
