"""What a contained workload finds inside: variables, places, GPUs."""

import os
import pwd
import shlex
from collections.abc import Sequence
from pathlib import Path

from gpuagent.environments.environment import Ending, Job
from gpuagent.environments.support.clients import last_line
from gpuagent_common.errors import GpuAgentError

# The Python of an image: the first on its own PATH.
PYTHON = "python3"

# What the workload finds inside as it is outside.
_PASSED_VARIABLES = ("GPUAGENT_DEBUG", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "OMP_NUM_THREADS")

_SHELL_SIGNAL = 128
_LAST_SIGNAL = 64
# What catatonit, Podman's init, says with exit code 1; Docker's ends with 127.
_INIT_FAILED = "failed to exec pid1"


def site_words(variable: str) -> list[str]:
    """Return the words of an environment variable with options, split as a shell would.

    Raises:
        GpuAgentError: a quote is not closed.
    """
    try:
        return shlex.split(os.environ.get(variable, ""))
    except ValueError as error:
        raise GpuAgentError(f"{variable} cannot be read: {error}") from error


def has_nvidia_gpu(dev: Path = Path("/dev")) -> bool:
    """Return whether the node has an NVIDIA GPU with its driver, or WSL's."""
    return (dev / "nvidiactl").exists() or (dev / "dxg").exists()


def cache_directory(environment: str) -> Path:
    """Return a directory that stays from run to run: the home inside, where libraries keep what they compiled."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = base / "gpuagent" / "containers" / environment
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GpuAgentError(f"cannot make the cache {directory}: {error.strerror}") from error
    return directory


def variables(job: Job, home: Path) -> dict[str, str]:
    """Return the environment variables that the workload finds inside beside the image's own."""
    return {
        **{name: job.variables[name] for name in _PASSED_VARIABLES if name in job.variables},
        "GPUAGENT_RUN_ID": job.run_id,
        "GPUAGENT_RUN_DIR": str(job.run_directory),
        "HOME": str(home),
        "USER": user_name(),
    }


def working_directory(job: Job) -> Path:
    """Return where the program starts."""
    return job.working_directory or job.run_directory


def writable_places(job: Job) -> Sequence[Path]:
    """Return what the program may write to: its run directory, and where it starts unless that is the whole node."""
    start = job.working_directory
    return [job.run_directory] if start in (None, Path("/")) else [job.run_directory, working_directory(job)]


def user_name() -> str:
    """Return the name of the agent's user: programs ask for it, and no image knows it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user{os.getuid()}"


def signal_of_shell_code(code: int) -> int:
    """Return an exit code as a negative signal where it says, as shells do, that one ended the program."""
    return _SHELL_SIGNAL - code if _SHELL_SIGNAL < code <= _SHELL_SIGNAL + _LAST_SIGNAL else code


def explain_inside(ending: Ending) -> str | None:
    """Return what a failed job lacked in its image, as far as its output tells."""
    if ending.exit_code in (126, 127) or _INIT_FAILED in ending.stderr:
        return f"the image cannot start the program: {last_line(ending.stderr)}"
    if "No module named gpuagent_workloads" in ending.stderr:
        return f"the image's {PYTHON} has no workloads; run in it: pip install 'gpuagent[workloads]'"
    return None
