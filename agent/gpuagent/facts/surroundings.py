"""What the detectors look at: passed in, so that a small tree of files can stand in for a node."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuagent.sources.support.files import read_text
from gpuagent.sources.support.nvml_api import OpenNvml, open_nvml


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The files, the environment variables, the architecture and the GPUs around the agent."""

    root: Path = Path("/")
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    machine: str = field(default_factory=lambda: os.uname().machine)
    open_nvml: OpenNvml = open_nvml

    def text(self, path: str) -> str | None:
        """Return the stripped text of a file below `root`, or None where it cannot be read or is empty."""
        return _stripped(self.root / path)

    def proc_text(self, path: str) -> str:
        """Return the text of a file below `proc`, empty where it cannot be read."""
        return read_text(self.proc / path) or ""

    def sys_text(self, path: str) -> str:
        """Return the stripped text of a file below `sys`, empty where it cannot be read."""
        return _stripped(self.sys / path) or ""

    def dmi(self, name: str) -> str:
        """Return what the firmware says: sys_vendor, product_name, …; empty where it says nothing."""
        return self.sys_text(f"class/dmi/id/{name}")

    def has(self, path: str) -> bool:
        """Tell whether something lies at `path` below `root`."""
        try:
            return (self.root / path).exists()
        except OSError:
            return False


def _stripped(path: Path) -> str | None:
    # Device-tree files end in a NUL.
    return (read_text(path) or "").strip(" \t\r\n\0") or None
