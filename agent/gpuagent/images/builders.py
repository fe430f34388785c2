"""How each kind of image is built, pushed and pulled, and what has to be cleared away afterwards."""

import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gpuagent.environments.support.clients import ClientError, ask_client
from gpuagent.environments.support.inside import site_words, user_name
from gpuagent_common.errors import MisuseError

Command = Sequence[str]

_TIDY_TRIES = 50
_TIDY_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One image on its way.

    Attributes:
        name: of this work alone, for what is needed in between.
        target: what is to be made: the image's name, or its path.
        arguments: build arguments, for recipes that take them.
    """

    name: str
    target: str
    arguments: Mapping[str, str] = field(default_factory=dict)


class Builder(Protocol):
    """Makes images for one environment. GPUAGENT_NAME_BUILD_ARGS are further options of its `build`."""

    environment: str
    # The project's recipe, below deploy/.
    recipe: str
    # What the image is called by default.
    tag: str
    # Whether its images are files or directories, named by their paths.
    has_files: bool
    # Whether its recipes take build arguments.
    takes_arguments: bool

    def program(self) -> str:
        """Return the program that has to be there."""
        ...

    def build(self, work: Work) -> Sequence[Command]:
        """Return the commands, to be run in the folder with the recipe, that make the image."""
        ...

    def push(self, work: Work, reference: str) -> Sequence[Command]:
        """Return the commands that bring the image to a registry."""
        ...

    def pull(self, work: Work, reference: str) -> Sequence[Command]:
        """Return the commands that bring the image from a registry."""
        ...

    def tidy(self, work: Work) -> None:
        """Remove what is left beside the image, however its build ended."""
        ...


class EngineBuilder:
    """Docker and Podman.

    Args:
        environment: `docker` or `podman`.
        options: how it is told to leave nothing of the build behind.
    """

    recipe = "docker/workloads.Dockerfile"
    tag = "gpuagent-workloads"
    has_files = False
    takes_arguments = True

    def __init__(self, environment: str, options: Sequence[str]) -> None:
        self.environment = environment
        self._options = options

    def program(self) -> str:
        """Return the client's name."""
        return self._client()[0]

    def build(self, work: Work) -> Sequence[Command]:
        """Return the one command of a build without a cache: what it would save is what is measured."""
        options = ["--no-cache", *self._options, *_site_options(self.environment), *_arguments(work.arguments)]
        return [[*self._client(), "build", *options, "--file", "recipe", "--tag", work.target, "."]]

    def push(self, work: Work, reference: str) -> Sequence[Command]:
        """Return the commands; Docker pushes what has the registry's name."""
        if self.environment == "podman":
            return [[*self._client(), "push", work.target, reference]]
        return [[*self._client(), "tag", work.target, reference], [*self._client(), "push", reference]]

    def pull(self, work: Work, reference: str) -> Sequence[Command]:  # noqa: ARG002
        """Return the command; the image keeps the registry's name."""
        return [[*self._client(), "pull", reference]]

    def tidy(self, work: Work) -> None:
        """Remove the stages that the image was copied from, and those of a failed build with their containers."""
        ours = ["--filter", f"label=gpuagent.build={work.name}"]
        for _ in range(_TIDY_TRIES):
            containers = _ask([*self._client(), "ps", "--all", "--quiet", *ours]).split()
            if not containers:
                break
            # A daemon that was interrupted is perhaps removing them itself.
            _ask([*self._client(), "rm", "--force", *containers])
            time.sleep(_TIDY_SECONDS)
        _ask([*self._client(), "image", "prune", "--force", *ours])

    def _client(self) -> list[str]:
        return site_words(f"GPUAGENT_{self.environment.upper()}") or [self.environment]


class ApptainerBuilder:
    """Apptainer and Singularity, which build as root or with --fakeroot."""

    recipe = "apptainer/workloads.def"
    tag = "workloads.sif"
    has_files = True
    takes_arguments = False

    def __init__(self, environment: str) -> None:
        self.environment = environment

    def program(self) -> str:
        """Return the program's name."""
        return self._client()[0]

    def build(self, work: Work) -> Sequence[Command]:
        """Return the one command."""
        return [[*self._client(), "build", *_site_options(self.environment), work.target, "recipe"]]

    def push(self, work: Work, reference: str) -> Sequence[Command]:
        """Return the command; `reference` says which kind of registry, as oras://."""
        return [[*self._client(), "push", work.target, reference]]

    def pull(self, work: Work, reference: str) -> Sequence[Command]:
        """Return the command; it also converts what comes from docker://."""
        return [[*self._client(), "pull", work.target, reference]]

    def tidy(self, work: Work) -> None:
        """Do nothing: it cleans up itself."""

    def _client(self) -> list[str]:
        return site_words(f"GPUAGENT_{self.environment.upper()}") or [self.environment]


class CharliecloudBuilder:
    """ch-image builds in a storage of its own, from which the directory is made."""

    environment = "charliecloud"
    recipe = "charliecloud/workloads.Dockerfile"
    tag = "gpuagent-workloads"
    has_files = True
    takes_arguments = True

    def program(self) -> str:
        """Return the program's name."""
        return "ch-image"

    def build(self, work: Work) -> Sequence[Command]:
        """Return the commands: build in the storage, then make the directory."""
        options = ["--no-cache", *_site_options(self.environment)]
        build = ["build", *options, "--file", "recipe", "--tag", work.name, *_arguments(work.arguments), "."]
        return [[*_charliecloud("ch-image"), *build], _convert(work.name, work.target)]

    def push(self, work: Work, reference: str) -> Sequence[Command]:
        """Return the command."""
        return [[*_charliecloud("ch-image"), "push", work.name, reference]]

    def pull(self, work: Work, reference: str) -> Sequence[Command]:
        """Return the commands."""
        return [[*_charliecloud("ch-image"), "pull", reference, work.name], _convert(work.name, work.target)]

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
    """Return the builder of an environment's images.

    Raises:
        MisuseError: there is none.
    """
    for builder in BUILDERS:
        if builder.environment == environment:
            return builder
    known = ", ".join(builder.environment for builder in BUILDERS)
    raise MisuseError(f"images are built for {known}, not for {environment!r}")


def _ask(command: Command) -> str:
    """Return what a tool prints; nothing where it fails, as over what is not there."""
    try:
        return ask_client(command)
    except ClientError:
        return ""


def _arguments(arguments: Mapping[str, str]) -> list[str]:
    return [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]


def _site_options(environment: str) -> list[str]:
    return site_words(f"GPUAGENT_{environment.upper()}_BUILD_ARGS")


def _convert(name: str, directory: str) -> Command:
    return [*_charliecloud("ch-convert"), "-i", "ch-image", "-o", "dir", name, directory]


def _charliecloud(program: str) -> list[str]:
    """Its scripts run by the first python3 of the PATH and want the system's, which has what they need; and a name.

    The system's is beside them, whatever environment of Python was activated.
    """
    own, found = Path(sys.executable).parent, shutil.which(program)
    path = [place for place in os.environ.get("PATH", "").split(os.pathsep) if Path(place) != own]
    beside = [str(Path(found).parent)] if found else []
    return ["env", f"PATH={os.pathsep.join([*beside, *path])}", f"USER={user_name()}", program]
