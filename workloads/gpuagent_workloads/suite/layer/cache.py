"""The size of the last cache before memory."""

from pathlib import Path

import torch

from gpuagent_workloads.parameters import parse_size

# Taken where the size is unknown: more than the last cache of nearly all processors of today.
UNKNOWN_CACHE_BYTES = 512 << 20

_CPU_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def last_cache_bytes(device: torch.device, cpu_caches: Path = _CPU_CACHES) -> int | None:
    """Return the size of a GPU's L2 cache, or of the largest cache in a folder of sysfs; None if it is unknown."""
    if device.type == "cuda":
        # Older versions of torch lack it.
        size_bytes: int | None = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", None)
        return size_bytes
    sizes = [parse_size(path.read_text(encoding="ascii")) for path in cpu_caches.glob("index*/size")]
    return max((size for size in sizes if size is not None), default=None)
