"""Ways to start a workload, one file each."""

from difflib import get_close_matches
from pathlib import Path

from gpuagent.environments.apptainer import Apptainer
from gpuagent.environments.bare import Bare
from gpuagent.environments.charliecloud import Charliecloud
from gpuagent.environments.engines import Docker, Podman
from gpuagent.environments.environment import Environment
from gpuagent.environments.kubernetes import Kubernetes
from gpuagent.environments.slurm import Slurm, SlurmContainer
from gpuagent_common.errors import MisuseError

# Every environment there is. A new one is a file here and a line in this tuple.
ENVIRONMENTS: tuple[Environment, ...] = (
    Bare(),
    Docker(),
    Podman(),
    Apptainer("apptainer"),
    Apptainer("singularity"),
    Charliecloud(),
    Slurm(),
    SlurmContainer(Apptainer("apptainer")),
    SlurmContainer(Apptainer("singularity")),
    SlurmContainer(Charliecloud()),
    Kubernetes(),
)


def find_environment(name: str) -> Environment:
    """Return the environment called `name`; an empty name means bare.

    Raises MisuseError: no environment has that name.
    """
    for environment in ENVIRONMENTS:
        if environment.name == (name or "bare"):
            return environment
    close = get_close_matches(name, [environment.name for environment in ENVIRONMENTS], n=1)
    raise MisuseError(
        f"unknown environment {name!r}; {f'did you mean {close[0]!r}?' if close else 'see: gpuagent info'}"
    )


def split_name(text: str) -> tuple[str, str]:
    """Return the environment's name and the image of ENV[:IMAGE]; an image's path made absolute, "" for no image.

    Raises MisuseError: no environment has that name.
    """
    name, _, image = text.partition(":")
    if not name:
        raise MisuseError(f"{text!r} names no environment; without a container it is bare")
    is_path = bool(image) and find_environment(name).has_image_paths
    return name, str(Path(image).absolute()) if is_path else image
