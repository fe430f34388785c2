"""The memory of the host that is available."""

import re
from pathlib import Path

from gpuagent_workloads.errors import WorkloadError


def available_bytes(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the available memory: the kernel's figure, or less if a cgroup allows less.

    Args:
        proc: the mount of procfs.
        cgroups: the mount of the cgroups, of version 2 or 1.
    """
    host = re.search(r"^MemAvailable:\s+(\d+) kB$", (proc / "meminfo").read_text(encoding="ascii"), re.MULTILINE)
    left = [int(host[1]) * 1024] if host else []
    for line in (proc / "self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            left += _left_in(cgroups, path, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            left += _left_in(cgroups / "memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes")
    if not left:
        raise WorkloadError("the kernel does not report the available memory: give --sizes")
    return max(0, min(left))


def _left_in(mount: Path, path: str, limit_file: str, usage_file: str) -> list[int]:
    """Return the memory left in each of the nested cgroups; a container shows only the outermost, as the root."""
    group = mount / path.lstrip("/")
    left = []
    for folder in (group, *group.parents):
        if not folder.is_relative_to(mount):
            break
        limit, usage = _read_number(folder / limit_file), _read_number(folder / usage_file)
        if limit is not None and usage is not None:
            left.append(limit - usage)
    return left


def _read_number(path: Path) -> int | None:
    """Return the number in a file; None: no such file, or `max`, which means no limit."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
