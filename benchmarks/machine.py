"""On what a benchmark ran, and how its tables are shown."""

import os
import platform
import sys
import time
from pathlib import Path

import psutil
from rich import box
from rich.console import Console
from rich.table import Table

# Of a table that goes into a document: nothing is wrapped.
_WIDE = 240


def describe() -> str:
    """Return the day, the machine and how busy it is, in one line."""
    memory_gib = psutil.virtual_memory().total / 2**30
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if "model name" in line), platform.machine())
    day = time.strftime("%Y-%m-%d", time.gmtime())
    return (
        f"{day}: {psutil.cpu_count()} CPUs ({model}), {memory_gib:.0f} GiB, {count_gpus()} GPUs, "
        f"Linux {platform.release()}, Python {platform.python_version()}, "
        f"load average {os.getloadavg()[0]:.1f}."
    )


def count_gpus() -> int:
    """Return the number of NVIDIA GPUs."""
    return len(list(Path("/proc/driver/nvidia/gpus").glob("*"))) or len(list(Path("/dev").glob("nvidia[0-9]*")))


def show(table: Table) -> None:
    """Print a table: drawn on a terminal, else in Markdown."""
    if not sys.stdout.isatty():
        table.box, table.show_edge = box.MARKDOWN, True
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table)
