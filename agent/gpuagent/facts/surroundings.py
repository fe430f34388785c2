"""The inputs of every detector, passed in so that a small tree of files can replace a node."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from gpuagent.sources.support.files import exists, read_text
from gpuagent.sources.support.nvml_api import OpenNvml, open_nvml


class BindMount(NamedTuple):
    """A mount: what is seen at `point` is `root` of its file system."""

    root: str
    point: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The files, environment variables, architecture, CPUs and GPUs around the agent.

    Readings through psutil come from `psutil.PROCFS_PATH`, which must agree with `proc`.
    """

    root: Path = Path("/")
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    machine: str = field(default_factory=lambda: os.uname().machine)
    # The number of CPUs that the agent may run on.
    allowed_cpus: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    open_nvml: OpenNvml = open_nvml

    def text(self, path: str) -> str | None:
        """Return the stripped text of a file below `root`, or None where it cannot be read or is empty."""
        return _read_stripped(self.root / path)

    def proc_text(self, path: str) -> str:
        """Return the text of a file below `proc`, empty where it cannot be read."""
        return read_text(self.proc / path) or ""

    def sys_text(self, path: str) -> str:
        """Return the stripped text of a file below `sys`, empty where it cannot be read."""
        return _read_stripped(self.sys / path) or ""

    def dmi(self, name: str) -> str:
        """Return a text of the firmware: sys_vendor, product_name, …; empty if missing."""
        return self.sys_text(f"class/dmi/id/{name}")

    def has(self, path: str) -> bool:
        """Return whether `path` exists below `root`."""
        return exists(self.root / path)

    def mounts(self) -> list[BindMount]:
        """Return the agent's mounts; psutil.disk_partitions() leaves out their roots."""
        lines = (line.split(" ") for line in self.proc_text("self/mountinfo").splitlines())
        return [BindMount(root=fields[3], point=fields[4]) for fields in lines if len(fields) > 4]


def _read_stripped(path: Path) -> str | None:
    # Device-tree files end in a NUL.
    return (read_text(path) or "").strip(" \t\r\n\0") or None
