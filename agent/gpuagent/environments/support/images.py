"""Names of images, and the architecture of the programs in them."""

import os
from pathlib import Path

from gpuagent.environments.environment import Image, ImageUnavailableError
from gpuagent_common.errors import MisuseError

# Go's names of machines, and so those of OCI images, where the kernel has others.
_MACHINES = {"amd64": "x86_64", "386": "i686", "arm64": "aarch64", "arm": "armv7l"}

# e_machine in elf.h; of ppc64, only little-endian systems still run GPUs.
_ELF_MACHINES = {3: "i686", 21: "ppc64le", 22: "s390x", 40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64"}

# (image, node) that differ, and yet the kernel runs the one on the other.
_COMPATIBLE = {("i686", "x86_64"), ("armv7l", "aarch64")}


def machine_of(architecture: str | None) -> str | None:
    """Return the kernel's name of an OCI image's architecture."""
    return _MACHINES.get(architecture, architecture) if architecture else None


def elf_machine(program: Path) -> str | None:
    """Return the machine that a program was built for; None: it is unreadable, or no ELF file."""
    try:
        with program.open("rb") as file:
            header = file.read(20)
    except OSError:
        return None
    if len(header) < 20 or not header.startswith(b"\x7fELF"):
        return None
    return _ELF_MACHINES.get(int.from_bytes(header[18:20], "little" if header[5] == 1 else "big"))


def need_name(environment: str, name: str | None, example: str) -> str:
    """Return the name of an image.

    Raises:
        MisuseError: the name is missing, or would be taken for an option.
    """
    if not name:
        raise MisuseError(f"{environment} needs an image: --environment {environment}:{example}")
    if name.startswith("-") or not name.isprintable():
        raise MisuseError(f"{name!r} is no name of an image; write --environment {environment}:{example}")
    return name


def check_machine(image: Image, machine: str | None = None) -> Image:
    """Return the image, if this node can run its programs.

    Args:
        machine: the node's machine; by default the kernel's answer.

    Raises:
        ImageUnavailableError: the programs are for another architecture.
    """
    node = machine or os.uname().machine
    if image.architecture in (None, node) or (image.architecture, node) in _COMPATIBLE:
        return image
    raise ImageUnavailableError(f"the image {image.name!r} is for {image.architecture}, and this node is {node}")
