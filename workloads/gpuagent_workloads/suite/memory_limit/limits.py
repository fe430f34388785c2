"""Limits of memory that hold, and how much of it is free."""

import re
import resource
from collections.abc import Sequence
from pathlib import Path

import torch

# oneDNN does not say why it cannot make what it made for a smaller stack of the same layers a moment ago.
_SHORT_OF_MEMORY = re.compile(
    r"can't allocate memory|not enough memory|out of memory|bad_alloc|could not create a (primitive|memory)"
)


def limit_memory(devices: Sequence[torch.device], limit_bytes: int) -> None:
    """Let this process take only so many bytes more, on each of the devices.

    On a GPU torch's own allocator refuses to go beyond. On a CPU the kernel does, by RLIMIT_DATA: it counts writable
    private memory as it is asked for, whoever asks. RLIMIT_AS would also count what is only reserved, of which thread
    stacks, allocator arenas and CUDA libraries have gigabytes; and a cgroup would kill the process where this fails one
    allocation, and needs privileges.
    """
    for device in devices:
        if device.type == "cuda":
            total_bytes = torch.cuda.get_device_properties(device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total_bytes), device)
        else:
            allowed_bytes = data_bytes() + limit_bytes
            resource.setrlimit(resource.RLIMIT_DATA, (allowed_bytes, allowed_bytes))


def free_bytes(device: torch.device) -> int | None:
    """Return what is free on a GPU, or what the kernel thinks can be had for programs; None if it does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return _kilobytes("MemAvailable", Path("/proc/meminfo"))


def data_bytes() -> int:
    """Return this process's memory as RLIMIT_DATA counts it."""
    return _kilobytes("VmData", Path("/proc/self/status")) or 0


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error says that memory is short, and nothing else."""
    if isinstance(error, torch.cuda.OutOfMemoryError | MemoryError):
        return True
    # On a CPU torch and oneDNN raise a bare RuntimeError.
    return isinstance(error, RuntimeError) and _SHORT_OF_MEMORY.search(str(error)) is not None


def _kilobytes(name: str, path: Path) -> int | None:
    found = re.search(rf"^{name}:\s+(\d+) kB$", path.read_text(encoding="ascii"), re.MULTILINE)
    return int(found[1]) * 1024 if found else None
