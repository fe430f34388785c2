"""System programs that tests need, and the packages of Debian and Ubuntu that have them."""

import os
import shutil
from typing import NoReturn

import pytest

_PACKAGES = {
    "busybox": "busybox-static",
    "ch-image": "charliecloud",
    "ch-run": "charliecloud",
    "chromedriver": "chromium-driver",
    "docker": "docker.io",
    "dockerd": "docker.io",
    "fusermount3": "fuse3",
    "mksquashfs": "squashfs-tools",
    "munged": "munge",
    "newuidmap": "uidmap",
    "promtool": "prometheus",
    "psql": "postgresql",
    "srun": "slurm-client",
    "systemd-analyze": "systemd",
    "taskset": "util-linux",
}


def found(program: str) -> str:
    need(program)
    return str(shutil.which(program))


def need(*programs: str) -> None:
    """Skip the test if a program is missing, with the package to install."""
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        packages = " ".join(dict.fromkeys(_PACKAGES.get(program, program) for program in missing))
        unavailable(f"needs {', '.join(missing)}; install: {packages}")


def unavailable(reason: str) -> NoReturn:
    """Skip the test, or fail it in CI, where every program is installed."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    raise AssertionError(reason)
