"""Charliecloud: an image is a directory, and the container a process of the user's own, in a user namespace."""

import os
import shlex
from pathlib import Path

from gpuagent.environments.environment import Ending, Image, ImageUnavailableError, Job, Launch
from gpuagent.environments.support.common import (
    Container,
    cache_directory,
    check_machine,
    check_pinned,
    elf_machine,
    last_line,
    need_name,
    need_program,
    pin_command,
    site_words,
    user_name,
    working_directory,
    writable_places,
)
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.limits import Limits

# Inside it is the node's own, and nothing can be mounted below it.
_SHARED = Path("/tmp")  # noqa: S108


class Charliecloud(Container):
    """Runs by ch-run in a directory. GPUAGENT_CHARLIECLOUD_ARGS are further options of ch-run."""

    name = "charliecloud"
    has_image_paths = True
    passes_input = True

    def check(self) -> None:
        """Check that it is installed."""
        need_program("ch-run", "install Charliecloud (Debian, Ubuntu: apt-get install charliecloud)")

    def find_image(self, name: str | None) -> Image:
        """Return the image in the directory `name`."""
        path = Path(need_name(self.name, name, "DIRECTORY")).absolute()
        if not (path / "bin").is_dir():
            build = shlex.join(["gpuagent", "image", "build", self.name, "--tag", str(path)])
            raise ImageUnavailableError(f"{str(path)!r} has no image; `{build}` makes one")
        # Links to the same file count once.
        sizes: dict[tuple[int, int], int] = {}
        for folder, _, names in os.walk(path):
            for file in names:
                found = os.lstat(os.path.join(folder, file))  # noqa: PTH118 - a tenth of the time
                sizes[found.st_dev, found.st_ino] = found.st_size
        machine = elf_machine(path / "bin/sh")
        return check_machine(Image(name=str(path), digest=None, architecture=machine, size_bytes=sum(sizes.values())))

    def check_limits(self, limits: Limits) -> None:
        """Check that taskset can enforce `limits`: whole CPUs, nothing else."""
        check_pinned(self.name, limits)

    def launch(self, job: Job) -> Launch:
        """Return the command that becomes the program; nothing is left of the container after its processes.

        Raises GpuAgentError: the image lacks a directory to mount on, and it cannot be made.
        """
        return self._launch(job, job.run_directory.parent)

    def launch_beside(self, job: Job) -> Launch:
        """Return the command that starts a neighbour, as by `launch`."""
        return self._launch(job, job.run_directory.parent.parent)

    def exit_code(self, code: int) -> int:
        """Return `code`: ch-run becomes the program."""
        return code

    def explain_own(self, ending: Ending) -> str | None:
        """Return why ch-run could not start the program."""
        error = last_line(ending.stderr)
        return (
            f"{self.name} could not start it: {error}" if error.startswith("ch-run[") else super().explain_own(ending)
        )

    def _launch(self, job: Job, runs: Path) -> Launch:
        """Return the command with `runs`, the folder of all run directories, mounted: one mount point for all runs."""
        image = Path(self.image_of(job).name)
        cache = cache_directory(self.name)
        writable = [runs if place == job.run_directory else place for place in writable_places(job)]
        # The variables that the image's recipe set, PATH above all, where its builder recorded them.
        options = ["--set-env"] if (image / "ch/environment").is_file() else []
        options += [f"--set-env=HOME={cache}", f"--cd={working_directory(job)}"]
        for place in sorted({cache, *writable, *job.data}):
            if not place.is_relative_to(_SHARED):
                point = image / place.relative_to("/")
                if not point.resolve().is_relative_to(image.resolve()):
                    raise GpuAgentError(
                        f"cannot mount {place} in {image}: a link there leads out of it; remove the link"
                    )
                try:
                    if place.is_file():
                        point.parent.mkdir(parents=True, exist_ok=True)
                        point.touch()
                    else:
                        point.mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    raise GpuAgentError(f"cannot make {point} in the image to mount on: {error.strerror}") from error
                options.append(f"--bind={place}")
        options += [*site_words("GPUAGENT_CHARLIECLOUD_ARGS"), *job.options]
        # ch-run would mount $TMPDIR on /tmp, and does not start without a user's name.
        command = [*pin_command(job.limits), "env", "-u", "TMPDIR", f"USER={user_name()}", "ch-run", *options]
        return Launch(command=[*command, str(image), "--", *job.program])
