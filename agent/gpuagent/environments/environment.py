"""What an environment is: one way to contain a workload."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gpuagent_common.errors import GpuAgentError
from gpuagent_common.limits import NO_LIMITS, Limits


class EnvironmentUnavailableError(GpuAgentError):
    """An environment cannot be used on this node: why, and in `remedy` what to do about it."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.remedy = remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A container image as it lies on this node.

    Attributes:
        name: as the user gave it.
        digest: what tells it from every other image, with its kind in front (`sha256:`, `sif:`); None: it has none.
        architecture: of the programs in it, as the kernel names it (`uname -m`); None: not known.
        size_bytes: what it takes on disk.
        layers: how many it is made of; None: not known, or none, as a directory has.
    """

    name: str
    digest: str | None
    architecture: str | None
    size_bytes: int | None
    layers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be contained.

    Attributes:
        program: the program and its arguments, as they are called inside.
        image: the image, None where the environment has none.
        run_directory: made by the agent, to be found inside at the same path, writable.
        working_directory: where the program starts, found inside as well; None: anywhere.
        data: files and directories that it reads.
        limits: what it may use; such as the environment's `check_limits` has let pass.
        variables: environment variables of the process that starts the job.
    """

    run_id: str
    program: Sequence[str]
    image: Image | None
    run_directory: Path
    working_directory: Path | None
    data: Sequence[Path]
    limits: Limits = NO_LIMITS
    variables: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a job is started, and what is to be done when it is over.

    Attributes:
        command: ends when the job has ended, with its exit code.
        afterwards: commands that leave nothing of the job behind, run however it ended, even if the agent was killed.
            What they print goes to the file `afterwards` in the run directory.
        find_root: returns the process whose descendants are the job's, None while there is none; None in its place:
            the job's processes descend from `command`.
        passes_signals: whether `command` passes on to the job that it should end.
        change_cpus: returns the command that gives the running job so many CPUs; None: they cannot be changed.
        is_silent_of_memory: whether nothing that is run tells reliably that the job ran out of memory, so that the
            agent has to hear of it from the kernel.
    """

    command: Sequence[str]
    afterwards: Sequence[Sequence[str]] = ()
    find_root: Callable[[], int | None] | None = None
    passes_signals: bool = False
    change_cpus: Callable[[float], Sequence[str]] | None = None
    is_silent_of_memory: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What is known of a job that has ended.

    Attributes:
        exit_code: as `Launch.command` ended, negative for a signal.
        stderr: the end of what it wrote there.
        afterwards: what the commands run afterwards printed.
        is_out_of_memory: whether the kernel said that its control group ran out of memory; False also where not asked.
    """

    exit_code: int
    stderr: str
    afterwards: str
    is_out_of_memory: bool = False


class Environment(Protocol):
    """One way to start a workload."""

    name: str
    # The Python in its images that has the workloads; None: it has no images, and the agent's own choice is used.
    python: str | None
    # Whether its images are named by their paths.
    has_image_paths: bool

    def check(self) -> None:
        """See whether it can be used on this node.

        Raises:
            EnvironmentUnavailableError: it cannot.
        """
        ...

    def find_image(self, name: str | None) -> Image | None:
        """Return the image called `name` on this node; None where the environment has no images.

        Raises:
            MisuseError: there is no such image, none was named where one is needed, or one where there are none.
        """
        ...

    def check_limits(self, limits: Limits) -> None:
        """See whether it can keep `limits`.

        Raises:
            MisuseError: it cannot, or not all of them.
            EnvironmentUnavailableError: it could, with what is not installed here.
        """
        ...

    def launch(self, job: Job) -> Launch:
        """Return how `job` is started.

        Raises:
            GpuAgentError: it cannot be.
        """
        ...

    def launch_beside(self, job: Job) -> Launch:
        """Return how `job`, without limits, is started as the neighbour of another one, in the same image.

        Its run directory is a subdirectory of the other's.

        Raises:
            GpuAgentError: it cannot be.
        """
        ...

    def exit_code(self, code: int) -> int:
        """Return the program's exit code, negative for a signal, where `Launch.command` ended with `code`."""
        ...

    def explain(self, ending: Ending) -> str | None:
        """Return, in words, why the job failed, where more is known than its exit code."""
        ...
