"""Debian for another processor, run by QEMU: a root file system, and what begins a command inside it."""

import os
import re
import subprocess
import tempfile
import zlib
from collections.abc import Sequence
from compileall import compile_dir
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuagent.images.recipe import write_wheel
from tests.support.containers import REPOSITORY
from tests.support.images import write_wheels
from tests.support.programs import found, need, unavailable
from tests.support.servers import Node

# What Debian calls each machine of `uname -m`.
ARCHITECTURES = {"ppc64le": "ppc64el", "aarch64": "arm64"}

# Programs that a Debian has by itself. Nothing is configured, so essential packages are named like others.
_SYSTEM = ("base-files", "bash", "coreutils", "dash", "findutils", "grep", "gzip", "libc-bin", "sed", "tar")
_PYTHON = ("python3", "python3-minimal", "python3-pip")

# Fixes made to Debian 12 since its release are not needed.
_SOURCES = """--setup-hook=sed -i -E '/-(security|updates) /d' "$1/etc/apt/sources.list\""""

# Mounts end with the command, which becomes the process that was started here.
_ENTER = """
root=$1 shared=$2 folder=$3; shift 3
mkdir -p "$root$shared" && mount --bind "$shared" "$root$shared"
for name in dev sys; do mount --rbind /$name "$root/$name"; done
mount -t proc proc "$root/proc"
exec chroot "$root" env --chdir="$folder" PATH=/usr/bin:/bin "$@"
"""


def documented_packages() -> list[str]:
    """Return the packages that the documentation of POWER has people install."""
    page = (REPOSITORY / "docs/deploy/power.md").read_text()
    return re.findall(r"python3-\S+", re.findall(r"^sudo apt-get install (.+)", page, re.MULTILINE)[0])


def make_debian(machine: str) -> Path:
    """Return the root of a Debian 12 for `machine` with the documented packages; it stays for the next tests.

    The test is skipped where the kernel runs no programs of `machine`.
    """
    need("mmdebstrap", "qemu-ppc64le-static", "update-binfmts", "unshare")
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount folders and to run programs of another processor")
    subprocess.run([found("update-binfmts"), "--enable"], capture_output=True, check=False)
    if not Path("/proc/sys/fs/binfmt_misc", f"qemu-{machine}").exists():
        pytest.skip("the kernel has no binfmt_misc, which runs programs of other processors")
    packages = sorted({*_SYSTEM, *_PYTHON, *documented_packages()})
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gpuagent-ci" / "debian"
    root = cache / f"{machine}-{zlib.crc32(' '.join(packages).encode()):x}"
    if not root.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            fresh = Path(folder) / "root"
            options = [f"--arch={ARCHITECTURES[machine]}", f"--include={','.join(packages)}", _SOURCES]
            command = [found("mmdebstrap"), "--quiet", "--variant=extract", *options, "bookworm", str(fresh)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                unavailable(f"Debian for {machine} cannot be made: {done.stderr[-300:]}")
            with suppress(OSError):  # another process of tests was quicker
                fresh.rename(root)
    return root


def inside(root: Path, folder: Path) -> Sequence[str]:
    """Return what begins a command in `root`, which shares the folder for temporary files, and works in `folder`."""
    return [found("unshare"), "--mount", "sh", "-ec", _ENTER, "-", str(root), tempfile.gettempdir(), str(folder)]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedAgent:
    """An agent in a root file system of another processor."""

    machine: str
    root: Path
    program: str

    def command(self, node: Node, *words: str) -> list[str]:
        """Return a command of `gpuagent` there, in the node's folder."""
        return [*inside(self.root, node.folder), self.program, *words]


def install_by_pip(machine: str, folder: Path) -> EmulatedAgent:
    """Install an agent into a folder as docs/deploy/power.md says; of pip's packages, those that Debian has not."""
    root = make_debian(machine)
    wheels = write_wheels(folder / "wheels", ["gpuagent"])
    there = inside(root, folder)
    # Without pip, and what it compiles: that takes twice the time here, where the system's pip is as good.
    venv = ["-m", "venv", "--without-pip", "--system-site-packages", "gpuagent"]
    subprocess.run([*there, "python3", *venv], check=True)
    options = ["--quiet", "--no-compile", "--no-index", f"--find-links={wheels}"]
    pip = ["-m", "pip", "--python", "gpuagent/bin/python3", "install", *options, str(write_wheel(wheels))]
    subprocess.run([*there, "python3", *pip], check=True)
    # Of the same minor version, this Python's bytecode is that of Debian's; it makes it in a tenth of the time.
    compile_dir(folder / "gpuagent/lib", quiet=1)
    return EmulatedAgent(machine=machine, root=root, program=f"{folder}/gpuagent/bin/gpuagent")
