"""The last cache before memory: how large it is, and how to fill it with something else."""

import re
from collections.abc import Callable
from pathlib import Path

import torch

# Taken where the size is not to be had: more than any processor's last cache that is known today, but for a few.
UNKNOWN_CACHE_BYTES = 512 << 20

_CPU_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def make_flush(device: torch.device, cache_bytes: int) -> Callable[[], object]:
    """Return a function that writes a buffer of twice the cache's size, so that nothing else stays in it."""
    buffer = torch.empty(2 * cache_bytes, dtype=torch.uint8, device=device)
    return buffer.zero_


def last_cache_bytes(device: torch.device) -> int | None:
    """Return the size of a GPU's L2 cache, or of the largest that a CPU core uses; None if that is not known."""
    if device.type == "cuda":
        # Older versions of torch do not tell.
        size_bytes: int | None = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", None)
        return size_bytes
    return cpu_cache_bytes(_CPU_CACHES)


def cpu_cache_bytes(caches: Path) -> int | None:
    """Return the size of the largest cache in a folder of sysfs (`…/cpu0/cache`), None if there is none."""
    sizes = [parse_size(path.read_text(encoding="ascii")) for path in caches.glob("index*/size")]
    return max((size for size in sizes if size is not None), default=None)


def parse_size(text: str) -> int | None:
    """Return the bytes that sysfs calls `32768K`, None if it is no such text."""
    parts = re.fullmatch(r"([0-9]+)([KMG]?)\n?", text)
    return int(parts[1]) * _UNITS[parts[2]] if parts else None
