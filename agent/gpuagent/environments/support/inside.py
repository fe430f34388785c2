"""The view of a contained workload: variables, places, GPUs."""

import os
import pwd
import shlex
from collections.abc import Sequence
from pathlib import Path

from gpuagent.environments.environment import Ending, Environment, Image, Job
from gpuagent.environments.support.clients import last_line
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.folders import user_folder

# The Python of an image: the first on its own PATH.
PYTHON = "python3"

# Variables that the workload finds inside as they are outside.
_PASSED_VARIABLES = (
    "GPUAGENT_DEBUG",
    "GPUAGENT_ITEMS_PER_STEP",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "OMP_NUM_THREADS",
    "PYTHONUNBUFFERED",
)

_SHELL_SIGNAL = 128
_LAST_SIGNAL = 64
# catatonit, Podman's init, prints this and ends with exit code 1; Docker's ends with 127.
_INIT_FAILED = "failed to exec pid1"


class Container(Environment):
    """An environment with images, whose runtime reports signals as a shell does."""

    python = PYTHON

    def exit_code(self, code: int) -> int:
        """Return the program's exit code: runtimes report a signal as 128 + its number."""
        return signal_of_shell_code(code)

    def explain_own(self, ending: Ending) -> str | None:
        """Return what a failed job lacked in its image, going by its output."""
        if ending.exit_code in (126, 127) or _INIT_FAILED in ending.stderr:
            return f"the image cannot start the program: {last_line(ending.stderr)}"
        if "No module named gpuagent_workloads" in ending.stderr:
            return f"the image's {PYTHON} has no workloads; run in it, in a checkout: pip install '.[workloads]'"
        return None

    def image_of(self, job: Job) -> Image:
        """Return a job's image.

        Raises:
            MisuseError: it has no image.
        """
        if job.image is None:
            raise MisuseError(f"{self.name} needs an image: --environment {self.name}:IMAGE")
        return job.image


def site_words(variable: str) -> list[str]:
    """Return the words of an environment variable with options, split as a shell would.

    Raises:
        GpuAgentError: a quote is not closed.
    """
    try:
        return shlex.split(os.environ.get(variable, ""))
    except ValueError as error:
        raise GpuAgentError(f"cannot read {variable}: {error}") from error


def has_nvidia_gpu(dev: Path = Path("/dev")) -> bool:
    """Return whether the node has an NVIDIA GPU with its driver, or WSL's."""
    return (dev / "nvidiactl").exists() or (dev / "dxg").exists()


def cache_directory(environment: str) -> Path:
    """Return the home inside, which stays from run to run: libraries keep their compiled code there."""
    base = user_folder(os.environ, "XDG_CACHE_HOME", ".cache", "cache")
    directory = base / "gpuagent" / "containers" / environment
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GpuAgentError(f"cannot make the cache {directory}: {error.strerror}; set XDG_CACHE_HOME") from error
    return directory


def variables(job: Job, home: Path) -> dict[str, str]:
    """Return the environment variables that the workload finds inside besides the image's own."""
    return {
        **{name: job.variables[name] for name in _PASSED_VARIABLES if name in job.variables},
        "GPUAGENT_RUN_ID": job.run_id,
        "GPUAGENT_RUN_DIR": str(job.run_directory),
        "HOME": str(home),
        "USER": user_name(),
    }


def working_directory(job: Job) -> Path:
    """Return the directory where the program starts."""
    return job.working_directory or job.run_directory


def writable_places(job: Job) -> Sequence[Path]:
    """Return the places that the program may write to: its run directory, and where it starts unless that is /."""
    start = job.working_directory
    return [job.run_directory] if start in (None, Path("/")) else [job.run_directory, working_directory(job)]


def user_name() -> str:
    """Return the name of the agent's user: programs ask for it, and no image knows it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user{os.getuid()}"


def signal_of_shell_code(code: int) -> int:
    """Return an exit code as a negative signal where it reports, as shells do, that one ended the program."""
    return _SHELL_SIGNAL - code if _SHELL_SIGNAL < code <= _SHELL_SIGNAL + _LAST_SIGNAL else code
