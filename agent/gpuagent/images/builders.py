"""The commands that build, push and pull each kind of image, and those that clean up afterwards."""

import os
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpuagent.environments.engines import WORKLOADS_IMAGE
from gpuagent.environments.support.common import ClientError, ask_client, site_words, user_name
from gpuagent_common.errors import MisuseError

Command = Sequence[str]

_TIDY_TRIES = 50
_TIDY_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One image in the making.

    Attributes:
        name: unique to this work, for intermediate names.
        target: the image's name or path.
        arguments: build arguments, for recipes that take them.
    """

    name: str
    target: str
    arguments: Mapping[str, str] = field(default_factory=dict)


class Builder(ABC):
    """A builder of images for one environment.

    GPUAGENT_NAME is its client with its own options, GPUAGENT_NAME_BUILD_ARGS are further options of its `build`.
    """

    environment: str
    # The project's recipe, below deploy/.
    recipe: str
    # The image's default name.
    tag: str
    # Whether its images are files or directories, named by their paths.
    has_files: bool
    # Whether its recipes take build arguments.
    takes_arguments: bool

    def client(self) -> list[str]:
        """Return the program, and its own options."""
        return site_words(f"GPUAGENT_{self.environment.upper()}") or [self.environment]

    @abstractmethod
    def build(self, work: Work) -> Sequence[Command]:
        """Return the commands, to be run in the folder with the recipe, that make the image."""

    @abstractmethod
    def push(self, work: Work, reference: str) -> Sequence[Command]:
        """Return the commands that push the image to a registry."""

    @abstractmethod
    def pull(self, work: Work, reference: str) -> Sequence[Command]:
        """Return the commands that pull the image from a registry."""

    def tidy(self, work: Work) -> None:  # noqa: B027 - Apptainer cleans up itself
        """Remove intermediate images and containers, however the build ended."""

    def _site_options(self) -> list[str]:
        return site_words(f"GPUAGENT_{self.environment.upper()}_BUILD_ARGS")


class EngineBuilder(Builder):
    """Docker and Podman.

    Args:
        environment: `docker` or `podman`.
        options: of its `build`, to leave nothing of the build behind.
    """

    recipe = "docker/workloads.Dockerfile"
    tag = WORKLOADS_IMAGE
    has_files = False
    takes_arguments = True

    def __init__(self, environment: str, options: Sequence[str]) -> None:
        self.environment = environment
        self._options = options

    def build(self, work: Work) -> Sequence[Command]:
        """Return the one command of a build without a cache, which would hide the time that is measured."""
        options = ["--no-cache", *self._options, *self._site_options(), *_arguments(work.arguments)]
        return [[*self.client(), "build", *options, "--file", "recipe", "--tag", work.target, "."]]

    def push(self, work: Work, reference: str) -> Sequence[Command]:
        """Return the commands; Docker pushes an image by the registry's name."""
        if self.environment == "podman":
            return [[*self.client(), "push", work.target, reference]]
        return [[*self.client(), "tag", work.target, reference], [*self.client(), "push", reference]]

    def pull(self, work: Work, reference: str) -> Sequence[Command]:  # noqa: ARG002
        """Return the command; the image keeps the registry's name."""
        return [[*self.client(), "pull", reference]]

    def tidy(self, work: Work) -> None:
        """Remove the stages that the image was copied from, and those of a failed build with their containers."""
        ours = ["--filter", f"label=gpuagent.build={work.name}"]
        for _ in range(_TIDY_TRIES):
            containers = _ask([*self.client(), "ps", "--all", "--quiet", *ours]).split()
            if not containers:
                break
            # An interrupted daemon may be removing them itself.
            _ask([*self.client(), "rm", "--force", *containers])
            time.sleep(_TIDY_SECONDS)
        _ask([*self.client(), "image", "prune", "--force", *ours])


class ApptainerBuilder(Builder):
    """Apptainer and Singularity, which build as root or with --fakeroot."""

    recipe = "apptainer/workloads.def"
    tag = "workloads.sif"
    has_files = True
    takes_arguments = False

    def __init__(self, environment: str) -> None:
        self.environment = environment

    def build(self, work: Work) -> Sequence[Command]:
        """Return the one command."""
        return [[*self.client(), "build", *self._site_options(), work.target, "recipe"]]

    def push(self, work: Work, reference: str) -> Sequence[Command]:
        """Return the command; `reference` begins with the kind of registry, such as oras://."""
        return [[*self.client(), "push", work.target, reference]]

    def pull(self, work: Work, reference: str) -> Sequence[Command]:
        """Return the command, which also converts images from docker://."""
        return [[*self.client(), "pull", work.target, reference]]


class CharliecloudBuilder(Builder):
    """ch-image, which builds in a storage of its own, and ch-convert, which makes the directory from it."""

    environment = "charliecloud"
    recipe = "charliecloud/workloads.Dockerfile"
    tag = WORKLOADS_IMAGE
    has_files = True
    takes_arguments = True

    def client(self) -> list[str]:
        """Return ch-image."""
        return ["ch-image"]

    def build(self, work: Work) -> Sequence[Command]:
        """Return the commands: build in the storage, then make the directory."""
        options = ["--no-cache", *self._site_options(), "--file", "recipe", "--tag", work.name]
        build = [*_charliecloud("ch-image"), "build", *options, *_arguments(work.arguments), "."]
        return [build, _convert(work)]

    def push(self, work: Work, reference: str) -> Sequence[Command]:
        """Return the command."""
        return [[*_charliecloud("ch-image"), "push", work.name, reference]]

    def pull(self, work: Work, reference: str) -> Sequence[Command]:
        """Return the commands: pull into the storage, then make the directory."""
        return [[*_charliecloud("ch-image"), "pull", reference, work.name], _convert(work)]

    def tidy(self, work: Work) -> None:
        """Remove the image from the storage; the directory is a copy."""
        _ask([*_charliecloud("ch-image"), "delete", work.name])


# Every builder there is.
BUILDERS: tuple[Builder, ...] = (
    EngineBuilder("docker", ["--force-rm"]),
    EngineBuilder("podman", ["--force-rm", "--layers=false"]),
    ApptainerBuilder("apptainer"),
    ApptainerBuilder("singularity"),
    CharliecloudBuilder(),
)


def find_builder(environment: str) -> Builder:
    """Return the builder of an environment's images. Raises MisuseError if the environment has no images to build."""
    for builder in BUILDERS:
        if builder.environment == environment:
            return builder
    known = ", ".join(builder.environment for builder in BUILDERS)
    raise MisuseError(f"images are built for {known}, not for {environment!r}")


def _ask(command: Command) -> str:
    try:
        return ask_client(command)
    except ClientError:
        return ""


def _arguments(arguments: Mapping[str, str]) -> list[str]:
    return [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]


def _convert(work: Work) -> Command:
    return [*_charliecloud("ch-convert"), "-i", "ch-image", "-o", "dir", work.name, work.target]


def _charliecloud(program: str) -> list[str]:
    """Return the beginning of the command of a Charliecloud script.

    Scripts run by the first python3 on PATH, and need the system's, which is beside them, not that of an activated
    environment. They also need a user's name.
    """
    own, found = Path(sys.executable).parent, shutil.which(program)
    path = [place for place in os.environ.get("PATH", "").split(os.pathsep) if Path(place) != own]
    beside = [str(Path(found).parent)] if found else []
    return ["env", f"PATH={os.pathsep.join([*beside, *path])}", f"USER={user_name()}", program]
