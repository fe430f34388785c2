"""Apptainer and its elder Singularity: an image is one file, and the container a process of the user's own."""

import contextlib
import os
import re
import shlex
import uuid
from pathlib import Path

import psutil

from gpuagent.environments.environment import Ending, Image, ImageUnavailableError, Job, Launch
from gpuagent.environments.support.common import (
    Container,
    cache_directory,
    check_machine,
    elf_machine,
    has_nvidia_gpu,
    limit_options,
    machine_of,
    need_name,
    need_program,
    refuse_changes,
    site_words,
    variables,
    working_directory,
    writable_places,
)
from gpuagent_common.errors import MisuseError
from gpuagent_common.limits import NO_LIMITS, Limits

# The line in which it says why there is no container, with exit code 255.
_FATAL = re.compile(r"^FATAL:\s+(.+)$", re.MULTILINE)
_FAILED = 255
# There where control groups are those of version 2 alone.
_CGROUPS_2 = Path("/sys/fs/cgroup/cgroup.controllers")

# Set for every program inside.
_CONTAINED = frozenset({"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"})

_SIF_HEADER_BYTES = 64
_SIF_MAGIC = b"SIF_MAGIC\0"
# Numbered by the SIF format, in pkg/sif/arch.go.
_SIF_ARCHITECTURES = {
    b"01": "386",
    b"02": "amd64",
    b"03": "arm",
    b"04": "arm64",
    b"06": "ppc64le",
    b"11": "s390x",
    b"12": "riscv64",
}


class Apptainer(Container):
    """Runs in a container from a .sif file or a directory.

    GPUAGENT_APPTAINER is the program with its own options, GPUAGENT_APPTAINER_ARGS are options of its `exec`; for
    Singularity GPUAGENT_SINGULARITY….

    Args:
        name: `apptainer` or `singularity`; both take the same options.
    """

    has_image_paths = True
    passes_input = True

    def __init__(self, name: str) -> None:
        self.name = name

    def check(self) -> None:
        """Check that it is installed."""
        need_program(self._client()[0], f"install {self.name}, or load its module: module load {self.name}")

    def find_image(self, name: str | None) -> Image:
        """Return the image in the file or directory `name`."""
        name = need_name(self.name, name, "IMAGE.sif")
        path = Path(name)
        if path.is_dir():
            machine = elf_machine(path / "bin/sh")
            return check_machine(Image(name=name, digest=None, architecture=machine, size_bytes=None))
        return check_machine(read_sif(path))

    def check_limits(self, limits: Limits) -> None:
        """Check that `limits` hold no changes, and that this user's programs can be limited."""
        refuse_changes(self.name, limits)
        if limits != NO_LIMITS and os.geteuid() != 0 and not _CGROUPS_2.exists():
            raise MisuseError(
                f"{self.name} limits a user's programs only with control groups of version 2 and systemd; "
                "omit --cpus and --memory, or run the agent as root"
            )

    def launch(self, job: Job) -> Launch:
        """Return the command that starts the program, a child of its own; nothing is left when both have ended."""
        site = [*site_words(f"GPUAGENT_{self.name.upper()}_ARGS"), *job.options]
        home = cache_directory(self.name)
        options = ["--cleanenv", f"--home={home}"]
        options += [f"--env={name}={value}" for name, value in variables(job, home).items() if name != "HOME"]
        options += [f"--bind={place}" for place in writable_places(job)]
        options += [f"--bind={place}:{place}:ro" for place in job.data]
        options += [f"--pwd={working_directory(job)}", *limit_options(job.limits)]
        if has_nvidia_gpu() and not any(word.startswith("--nv") for word in site):
            options.append("--nv")
        image = str(Path(self.image_of(job).name).resolve())
        return Launch(
            command=[*self._client(), "exec", *options, *site, image, *job.program],
            passes_signals=True,
            find_program=find_contained,
        )

    def explain_own(self, ending: Ending) -> str | None:
        """Return why there was no container, or what its image lacked."""
        fatal = _FATAL.findall(ending.stderr) if ending.exit_code == _FAILED else []
        return f"{self.name} could not start it: {fatal[-1]}" if fatal else super().explain_own(ending)

    def _client(self) -> list[str]:
        return site_words(f"GPUAGENT_{self.name.upper()}") or [self.name]


def find_contained(ancestor: int) -> int | None:
    """Return the program among the descendants of a process; None: it has not begun, or cannot be seen.

    Before it, an image may be unpacked, and after it, that is deleted. A container's variables name it.
    """
    with contextlib.suppress(psutil.Error, OSError):
        for process in psutil.Process(ancestor).children(recursive=True):
            with contextlib.suppress(psutil.Error, OSError):
                if not _CONTAINED.isdisjoint(process.environ()):
                    return process.pid
    return None


def read_sif(path: Path) -> Image:
    """Return the image that the header of a .sif file describes.

    Raises:
        ImageUnavailableError: the file cannot be read.
        MisuseError: it has another format.
    """
    try:
        with path.open("rb") as file:
            header = file.read(32 + _SIF_HEADER_BYTES)[32:]
            size_bytes = os.fstat(file.fileno()).st_size
    except OSError as error:
        reason = f"cannot read the image {str(path)!r}: {error.strerror}"
        build = shlex.join(["gpuagent", "image", "build", "apptainer", "--tag", str(path)])
        remedy = "" if path.exists() else f"; `{build}` makes it"
        raise ImageUnavailableError(f"{reason}{remedy}") from error
    if len(header) < _SIF_HEADER_BYTES or not header.startswith(_SIF_MAGIC):
        raise MisuseError(f"{str(path)!r} is no .sif file; `gpuagent image build apptainer` makes one")
    return Image(
        name=str(path),
        digest=f"sif:{uuid.UUID(bytes=header[16:32])}",
        architecture=machine_of(_SIF_ARCHITECTURES.get(header[13:15])),
        size_bytes=size_bytes,
    )
