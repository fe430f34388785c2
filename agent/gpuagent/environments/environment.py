"""The contract of an environment: one way to contain a workload."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuagent_common.connection import TlsFiles
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.limits import NO_LIMITS, Limits, memory_text

_SIGKILL = -9

# Time from SIGTERM to SIGKILL of most programs.
GRACE_SECONDS = 10.0


class EnvironmentUnavailableError(GpuAgentError):
    """An environment that this node lacks: the reason, and in `remedy` what to do about it."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.remedy = remedy


class ImageUnavailableError(MisuseError):
    """An error because this node lacks an image, or cannot run its programs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A container image on this node.

    Attributes:
        name: as the user gave it.
        digest: its unique digest with the kind in front (`sha256:`, `sif:`); None: images of this kind have no digest.
        architecture: of its programs, as the kernel names it (`uname -m`); None: unknown.
        layers: its number of layers; None: unknown, or a directory.
    """

    name: str
    digest: str | None
    architecture: str | None
    size_bytes: int | None
    layers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The settings of this agent that a workload elsewhere needs to measure itself.

    Attributes:
        collector: HOST:PORT, where it delivers.
    """

    collector: str
    token_file: Path
    tls: TlsFiles | None = None
    platform: str
    rate_hz: float = 10.0
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """A place where this agent cannot follow a workload, which therefore measures and records itself.

    Attributes:
        reason: why this agent cannot follow it.
        user: the number of its user there; None: the place chooses one.
        plan: the run, for the agent there.
    """

    reason: str
    user: int | None
    home: Home
    plan: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A program to contain.

    Attributes:
        program: the program and its arguments, by their names inside.
        image: the image; None where the environment has no images.
        run_directory: made by the agent; inside at the same path, writable.
        working_directory: where the program starts, the same inside; None: anywhere.
        data: files and directories that it reads.
        limits: resource limits, already validated by `check_limits`.
        options: further options of the site, for this job alone.
        elsewhere: where it measures itself; None: this agent follows it.
        nodes: number of nodes of a job elsewhere, each with a part that measures itself.
        variables: environment variables of the process that starts the job.
    """

    run_id: str
    program: Sequence[str]
    image: Image | None
    run_directory: Path
    working_directory: Path | None
    data: Sequence[Path]
    limits: Limits = NO_LIMITS
    options: Sequence[str] = ()
    elsewhere: Elsewhere | None = None
    nodes: int = 1
    variables: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The begin and the end of a program in Unix time, as its environment reports them; None: it does not."""

    started_unix_nano: int | None = None
    ended_unix_nano: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The command that starts a job, and the work after its end.

    Attributes:
        command: ends when the job has ended, with its exit code.
        afterwards: commands that remove the rest of the job; run after every end, even if the agent was killed.
            Their output goes to the file `afterwards` in the run directory.
        find_root: returns the process whose descendants are the job's, None while it does not exist; None in its place:
            the job's processes descend from `command`.
        root_is_program: whether that process is the program, and not an init that started it.
        find_program: returns the program among the descendants of the root, None while it does not exist; None in its
            place: the root becomes the program, or the environment reports its times.
        passes_signals: whether `command` passes SIGTERM on to the job.
        change_cpus: returns the command that gives the running job so many CPUs; None: they cannot change.
        grace_seconds: time from SIGTERM to SIGKILL.
        is_program: whether `command` is the program itself although there is an image, which the agent is in too.
    """

    command: Sequence[str]
    afterwards: Sequence[Sequence[str]] = ()
    find_root: Callable[[], int | None] | None = None
    root_is_program: bool = False
    find_program: Callable[[int], int | None] | None = None
    passes_signals: bool = False
    change_cpus: Callable[[float], Sequence[str]] | None = None
    grace_seconds: float = GRACE_SECONDS
    is_program: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The traces of a job that has ended.

    Attributes:
        exit_code: of `Launch.command`, negative for a signal.
        stderr: the end of its standard error.
        afterwards: the output of the commands run afterwards.
        has_oom_kill: whether the kernel ended a process of the node for lack of memory; False also if unknown.
        memory_bytes: its memory limit; None: no limit was asked for.
    """

    exit_code: int
    stderr: str
    afterwards: str
    has_oom_kill: bool = False
    memory_bytes: int | None = None

    @property
    def memory_limit(self) -> str:
        """Its memory limit, in words; a site's own options may have set one that the agent does not know."""
        return (
            "its memory limit" if self.memory_bytes is None else f"its memory limit ({memory_text(self.memory_bytes)})"
        )


class Environment(ABC):
    """One way to start a workload. The methods here fit a process of the node without images."""

    name: str
    # The Python in its images that has the workloads; None: it has no images, and the agent's own choice is used.
    python: str | None = None
    # Whether its images are named by their paths.
    has_image_paths = False
    # Whether a program in it reads the standard input of the process that starts it.
    passes_input = False
    # Whether its workloads may run where this agent cannot follow them.
    may_be_elsewhere = False

    def check(self) -> None:  # noqa: B027 - a process needs nothing
        """Check that this node can use it.

        Raises EnvironmentUnavailableError: a program is missing or does not answer.
        """

    def find_image(self, name: str | None) -> Image | None:
        """Return the image called `name` on this node; None where the environment has no images.

        Raises:
            ImageUnavailableError: the image is missing or for another architecture.
            MisuseError: a name is missing or not wanted.
        """
        if name:
            raise MisuseError(f"{self.name} has no images; got {name!r}; use --environment {self.name}")
        return None

    def find_elsewhere(self, job: Job, home: Home) -> Elsewhere | None:  # noqa: ARG002
        """Return where `job` has to measure itself; None: this agent can follow it.

        Raises GpuAgentError: the job is refused everywhere.
        """
        return None

    def meeting_point(self, run_id: str) -> str:
        """Return HOST:PORT where the ranks of a run elsewhere meet, on the first of its nodes.

        Raises MisuseError: its runs elsewhere have one node.
        """
        raise MisuseError(f"{self.name} has no meeting point for {run_id}; give --rendezvous HOST:PORT")

    @abstractmethod
    def check_limits(self, limits: Limits) -> None:
        """Check that it can enforce `limits`.

        Raises:
            MisuseError: it cannot enforce all of them.
            EnvironmentUnavailableError: a program that would enforce them is missing.
        """

    def prepare(self, run_directory: Path) -> None:  # noqa: B027
        """Write into a run directory what `launch` needs there, right before it; questions about a job write nothing.

        Most environments need nothing.
        """

    @abstractmethod
    def launch(self, job: Job) -> Launch:
        """Return the command that starts `job`. Raises GpuAgentError where the job cannot start here."""

    def launch_beside(self, job: Job) -> Launch:
        """Return the command that starts `job`, without limits, as the neighbour of another one in the same image.

        Its run directory is a subdirectory of the other's. Raises GpuAgentError: the job cannot start here.
        """
        return self.launch(job)

    def exit_code(self, code: int) -> int:
        """Return the program's exit code, negative for a signal, where `Launch.command` ended with `code`."""
        return code

    def find_span(self, run_directory: Path) -> Span:  # noqa: ARG002
        """Return the begin and the end of the job in this run directory, as far as `Launch.command` hides them."""
        return Span()

    def explain(self, ending: Ending) -> str | None:
        """Return why the job failed; None: its exit code is all that is known."""
        if reason := self.explain_own(ending):
            return reason
        limit = "memory" if ending.memory_bytes is None else ending.memory_limit
        # Never certain: the count is the whole node's, so that the process that it counts may be another's.
        if self.exit_code(ending.exit_code) == _SIGKILL:
            if ending.has_oom_kill or ending.memory_bytes is not None:
                return f"ended by signal 9, probably because {limit} ran out"
        elif ending.has_oom_kill and ending.memory_bytes is not None:
            return f"the kernel ended a process, probably because {limit} ran out"
        return None

    def explain_own(self, ending: Ending) -> str | None:  # noqa: ARG002
        """Return why the job failed, as far as this environment reports it."""
        return None
