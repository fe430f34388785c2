"""System programs that tests need, and the packages of Debian and Ubuntu that have them.

`python3 -m tests.support.programs` prints the packages that this machine lacks. It runs before anything is installed.
"""

import importlib.util
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

PACKAGES = {
    "busybox": "busybox-static",
    "catatonit": "catatonit",
    "ch-image": "charliecloud",
    "ch-run": "charliecloud",
    "chromedriver": "chromium-driver",
    "chromium": "chromium",
    "dash": "dash",
    "docker": "docker.io",
    "dockerd": "docker.io",
    "fakeroot": "fakeroot",
    "fusermount3": "fuse3",
    "g++": "g++",
    "ip": "iproute2",
    "make": "make",
    "mariadb-install-db": "mariadb-server",
    "mariadbd": "mariadb-server",
    "mksquashfs": "squashfs-tools",
    "mmdebstrap": "mmdebstrap",
    "munged": "munge",
    "newuidmap": "uidmap",
    "openssl": "openssl",
    "podman": "podman",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "psql": "postgresql",
    "qemu-ppc64le-static": "qemu-user-static",
    "runc": "runc",
    "sacct": "slurm-client",
    "sacctmgr": "slurm-client",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "squashfuse": "squashfuse",
    "srun": "slurm-client",
    "systemd-analyze": "systemd",
    "taskset": "util-linux",
    "unshare": "util-linux",
    "update-binfmts": "binfmt-support",
    "victoria-metrics": "victoria-metrics",
    "xz": "xz-utils",
}

# No package of Debian has it, or none that is new enough.
PAGES = {"kubectl": "https://kubernetes.io/docs/tasks/tools/"}

# What stands in the reason of a skip before what installs its programs.
_INSTALL = "; install: "


def found(program: str) -> str:
    need(program)
    return str(shutil.which(program))


def need(*programs: str) -> None:
    """Skip the test if a program is missing, with the package to install."""
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        sources = dict.fromkeys((PACKAGES | PAGES)[program] for program in missing)
        unavailable(f"needs {', '.join(missing)}{_INSTALL}{' '.join(sources)}")


def unavailable(reason: str) -> NoReturn:
    """Skip the test, or fail it in CI, where every program is installed."""
    import pytest  # only tests have it

    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    raise AssertionError(reason)


def describe_missing(reasons: Iterable[str]) -> str | None:
    """Return in one line what installs all programs whose absence is among the reasons of skips; None: none is."""
    sources = sorted({source for reason in reasons for source in reason.partition(_INSTALL)[2].split()})
    pages = [source for source in sources if "://" in source]
    packages = [source for source in sources if source not in pages]
    remedies = [f"apt-get install {' '.join(packages)}"] if packages else []
    return "; ".join([*remedies, *pages]) or None


def missing_packages() -> list[str]:
    """Return the packages of all programs that this machine lacks, each once."""
    missing = {package for program, package in PACKAGES.items() if not shutil.which(program)}
    if not importlib.util.find_spec("ensurepip"):
        missing.add("python3-venv")
    # The server's programs are not on the path, as those of a client are.
    if not any(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        missing.add("postgresql")
    return sorted(missing)


if __name__ == "__main__":
    print(*missing_packages())
