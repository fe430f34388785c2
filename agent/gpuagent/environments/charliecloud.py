"""Charliecloud: a directory is an image, and the container is a process of the user's own, in a user namespace."""

import os
from pathlib import Path

from gpuagent.environments.environment import Ending, Image, Job, Launch
from gpuagent.environments.support.clients import last_line, need_program
from gpuagent.environments.support.images import check_machine, elf_machine, need_name
from gpuagent.environments.support.inside import (
    PYTHON,
    cache_directory,
    explain_inside,
    site_words,
    user_name,
    working_directory,
    writable_places,
)
from gpuagent.environments.support.limits import check_pinned, pinned
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.limits import Limits

# It is the node's own inside, and nothing can be mounted below.
_SHARED = Path("/tmp")  # noqa: S108


class Charliecloud:
    """Runs by ch-run in a directory. GPUAGENT_CHARLIECLOUD_ARGS are further options of ch-run."""

    name = "charliecloud"
    python: str | None = PYTHON
    has_image_paths = True

    def check(self) -> None:
        """See whether it is installed.

        Raises:
            EnvironmentUnavailableError: it is not.
        """
        need_program("ch-run", "install Charliecloud (Debian, Ubuntu: apt-get install charliecloud)")

    def find_image(self, name: str | None) -> Image:
        """Return the image in the directory `name`.

        Raises:
            MisuseError: there is none, or it is for another architecture.
        """
        path = Path(need_name(self.name, name, "DIRECTORY")).absolute()
        if not (path / "bin").is_dir():
            raise MisuseError(f"{str(path)!r} is no directory with an image; `ch-convert` makes one")
        machine = elf_machine(path / "bin/sh")
        return check_machine(
            Image(name=str(path), digest=None, architecture=machine, size_bytes=_size_bytes(path)),
        )

    def check_limits(self, limits: Limits) -> None:
        """See whether taskset can keep `limits`: whole CPUs, nothing else.

        Raises:
            MisuseError: it cannot.
            EnvironmentUnavailableError: there is no taskset.
        """
        check_pinned(self.name, limits)

    def launch(self, job: Job) -> Launch:
        """Return how `job` is started; nothing is left of it when its processes have ended.

        Raises:
            GpuAgentError: the image lacks a directory to mount one on, and it cannot be made.
        """
        return self._launch(job, job.run_directory.parent)

    def launch_beside(self, job: Job) -> Launch:
        """Return how `job` is started, as by `launch`."""
        return self._launch(job, job.run_directory.parent.parent)

    def _launch(self, job: Job, runs: Path) -> Launch:
        """Return how `job` is started with `runs` mounted, the folder of all run directories.

        So one mount point stays in the image, not one a run.
        """
        if job.image is None:
            raise MisuseError(f"{self.name} needs an image")
        cache = cache_directory(self.name)
        writable = [runs if place == job.run_directory else place for place in writable_places(job)]
        places = {cache, *writable, *job.data}
        options = [*_image_variables(job.image), f"--set-env=HOME={cache}", f"--cd={working_directory(job)}"]
        for place in sorted(place for place in places if not place.is_relative_to(_SHARED)):
            _make_mount_point(Path(job.image.name), place)
            options.append(f"--bind={place}")
        site = site_words("GPUAGENT_CHARLIECLOUD_ARGS")
        # Elsewhere than in /tmp, $TMPDIR would be mounted on it. ch-run does not start without a user's name.
        command = [*pinned(job.limits), "env", "-u", "TMPDIR", f"USER={user_name()}", "ch-run", *options, *site]
        return Launch(command=[*command, job.image.name, "--", *job.program])

    def exit_code(self, code: int) -> int:
        """Return `code`: ch-run becomes the program."""
        return code

    def explain(self, ending: Ending) -> str | None:
        """Return, in words, why the container failed."""
        said = last_line(ending.stderr)
        if said.startswith("ch-run["):
            return f"{self.name} could not start it: {said}"
        return explain_inside(ending)


def _image_variables(image: Image) -> list[str]:
    """Return the option that sets what the image's recipe set, its PATH above all, where its builder noted that."""
    return ["--set-env"] if (Path(image.name) / "ch/environment").is_file() else []


def _make_mount_point(image: Path, place: Path) -> None:
    """Make the directory (for a file, an empty one) in the image that `place` is mounted on."""
    point = image / place.relative_to("/")
    if not point.resolve().is_relative_to(image.resolve()):
        raise GpuAgentError(f"{place} cannot be mounted in {image}: a link there leads out of it")
    try:
        if place.is_file():
            point.parent.mkdir(parents=True, exist_ok=True)
            point.touch()
        else:
            point.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GpuAgentError(f"the image has no {point} to mount on, and it cannot be made: {error.strerror}") from error


def _size_bytes(directory: Path) -> int:
    """Return what the files of an image hold, links counted once."""
    sizes: dict[tuple[int, int], int] = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            found = os.lstat(os.path.join(folder, name))  # noqa: PTH118 - a tenth of the time
            sizes[found.st_dev, found.st_ino] = found.st_size
    return sum(sizes.values())
