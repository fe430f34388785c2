"""Small trees of files that replace a node's /proc, /sys and the rest."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuagent.clock import Instant
from gpuagent.facts import Surroundings

NODES = Path(__file__).parents[1] / "fixtures/nodes"


def plant(root: Path, files: Mapping[str, str]) -> Path:
    """Write `files`, text by path, below `root`; return `root`."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def mountinfo_at(root: Path, mountinfo: str) -> str:
    """Return `mountinfo` with the control groups' mount points below `root`: they are absolute on a real node."""
    return mountinfo.replace(" /sys/fs/cgroup", f" {root}/sys/fs/cgroup")


def node(name: str, tmp_path: Path, **changes: Any) -> Surroundings:
    """Return the surroundings of the node in tests/fixtures/nodes/NAME, copied to `tmp_path`."""
    root = shutil.copytree(NODES / name, tmp_path / name)
    mountinfo = root / "proc/self/mountinfo"
    mountinfo.write_text(mountinfo_at(root, mountinfo.read_text()))
    variables = root / "environment"
    lines = variables.read_text().splitlines() if variables.exists() else []
    machine, allowed_cpus = root / "machine", root / "allowed_cpus"
    given: dict[str, Any] = {
        "root": root,
        "proc": root / "proc",
        "sys": root / "sys",
        "environment": dict(line.split("=", 1) for line in lines),
        "machine": machine.read_text().strip() if machine.exists() else "x86_64",
        "allowed_cpus": int(allowed_cpus.read_text()) if allowed_cpus.exists() else 1024,
    }
    return Surroundings(**(given | changes))


def instant(seconds: float) -> Instant:
    return Instant(unix_nano=1_700_000_000_000_000_000 + round(seconds * 1e9), monotonic_nano=round(seconds * 1e9))
