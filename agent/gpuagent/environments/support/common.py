"""Shared parts of environments: clients of container runtimes, images, limits, and the view of a contained workload."""

import contextlib
import os
import pwd
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from gpuagent.environments.environment import (
    Ending,
    Environment,
    EnvironmentUnavailableError,
    Image,
    ImageUnavailableError,
    Job,
)
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.folders import user_folder
from gpuagent_common.limits import Limits


def read_run_file(path: Path, offset: int, most_bytes: int) -> bytes:
    """Return the content of a regular file from `offset` on, a negative one from its end; nothing if there is none."""
    with contextlib.suppress(OSError):
        # An ordinary open of a pipe waits for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            status = os.fstat(descriptor)
            start = offset if offset >= 0 else max(0, status.st_size + offset)
            return os.pread(descriptor, most_bytes, start) if stat.S_ISREG(status.st_mode) else b""
        finally:
            os.close(descriptor)
    return b""


# psutil lets some errors of the kernel pass.
_GONE_OR_HIDDEN = (psutil.Error, OSError)


def has_run(pid: int, run_id: str) -> bool:
    """Return whether a process belongs to a run; another process may have its number in another namespace."""
    try:
        return psutil.Process(pid).environ().get("GPUAGENT_RUN_ID") == run_id
    except _GONE_OR_HIDDEN:
        return False


def find_processes(run_id: str, agent: int | None = None) -> Iterator[tuple[int, Sequence[tuple[int, str]]]]:
    """Yield each process of a run that does not descend from the agent: its number, its ancestors' numbers and names.

    The nearest ancestor comes first. The agent's descendants are only the clients that asked others to start the run.
    """
    for process in psutil.process_iter():
        with contextlib.suppress(*_GONE_OR_HIDDEN):
            if process.environ().get("GPUAGENT_RUN_ID") == run_id:
                ancestors = [(parent.pid, parent.name()) for parent in process.parents()]
                if (agent or os.getpid()) not in (pid for pid, _ in ancestors):
                    yield process.pid, ancestors


# A silent runtime hangs. Podman's first call of a user may take seconds.
_ANSWER_SECONDS = 30.0


class ClientError(Exception):
    """A client failed: the last line of its standard error."""


def ask_client(command: Sequence[str]) -> str:
    """Return the output of a client. Raises ClientError where it failed, or did not answer."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ClientError(f"no answer within {_ANSWER_SECONDS:.0f} s") from error
    except OSError as error:
        raise ClientError(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise ClientError(last_line(done.stderr) or f"it ended with exit code {done.returncode}")
    return done.stdout


def need_program(program: str, remedy: str) -> None:
    """Check that a program exists. Raises EnvironmentUnavailableError where it does not."""
    if not shutil.which(program):
        raise EnvironmentUnavailableError(f"there is no program {program!r}", remedy)


def last_line(text: str) -> str:
    """Return the last line of `text` that is not blank."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


# Go's names of machines, and so those of OCI images, where the kernel has others.
_MACHINES = {"amd64": "x86_64", "386": "i686", "arm64": "aarch64", "arm": "armv7l"}

# e_machine in elf.h; of ppc64, only little-endian systems still run GPUs.
_ELF_MACHINES = {3: "i686", 21: "ppc64le", 22: "s390x", 40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64"}

# (image, node) that differ, and yet the kernel runs the one on the other.
_COMPATIBLE = {("i686", "x86_64"), ("armv7l", "aarch64")}


def machine_of(architecture: str | None) -> str | None:
    """Return the kernel's name of an OCI image's architecture."""
    return _MACHINES.get(architecture, architecture) if architecture else None


def elf_machine(program: Path) -> str | None:
    """Return the machine that a program was built for; None: it is unreadable, or no ELF file."""
    try:
        with program.open("rb") as file:
            header = file.read(20)
    except OSError:
        return None
    if len(header) < 20 or not header.startswith(b"\x7fELF"):
        return None
    return _ELF_MACHINES.get(int.from_bytes(header[18:20], "little" if header[5] == 1 else "big"))


def need_name(environment: str, name: str | None, example: str) -> str:
    """Return the name of an image. Raises MisuseError where the name is missing, or would be taken for an option."""
    if not name:
        raise MisuseError(f"{environment} needs an image: --environment {environment}:{example}")
    if name.startswith("-") or not name.isprintable():
        raise MisuseError(f"{name!r} is no name of an image; write --environment {environment}:{example}")
    return name


def check_machine(image: Image, machine: str | None = None) -> Image:
    """Return the image, if this node can run its programs.

    Args:
        machine: the node's machine; by default the kernel's answer.

    Raises:
        ImageUnavailableError: the programs are for another architecture.
    """
    node = machine or os.uname().machine
    if image.architecture in (None, node) or (image.architecture, node) in _COMPATIBLE:
        return image
    raise ImageUnavailableError(f"the image {image.name!r} is for {image.architecture}, and this node is {node}")


def refuse_changes(environment: str, limits: Limits) -> None:
    """Refuse changes during the run. Raises MisuseError where `limits` hold some."""
    if limits.changes:
        raise MisuseError(f"{environment} cannot change the CPUs of a running program; docker and podman can")


def whole_cpus(environment: str, limits: Limits) -> int | None:
    """Return the number of CPUs; None: no limit. Raises MisuseError where it is not whole."""
    if limits.cpus is None:
        return None
    if limits.cpus % 1:
        raise MisuseError(f"{environment} gives whole CPUs only, not {limits.cpus:g}; docker and podman give parts")
    return int(limits.cpus)


def check_pinned(environment: str, limits: Limits) -> None:
    """Check that `pin_command` can enforce the limits.

    Raises:
        MisuseError: it cannot.
        EnvironmentUnavailableError: taskset is missing.
    """
    if limits.memory_bytes is not None:
        raise MisuseError(f"{environment} cannot limit memory; docker, podman, apptainer, slurm and kubernetes can")
    refuse_changes(environment, limits)
    cpus = whole_cpus(environment, limits)
    if cpus is None:
        return
    need_program("taskset", "install util-linux, or omit --cpus")
    allowed = len(os.sched_getaffinity(0))
    if cpus > allowed:
        raise MisuseError(f"the agent itself may use {allowed} CPUs, not cpus={cpus}; ask for fewer")


def pin_command(limits: Limits) -> list[str]:
    """Return the command before a program that binds it to the first CPUs of the agent; empty: no limit."""
    if limits.cpus is None:
        return []
    chosen = sorted(os.sched_getaffinity(0))[: int(limits.cpus)]
    return ["taskset", "--cpu-list", ",".join(map(str, chosen))]


def limit_options(limits: Limits) -> list[str]:
    """Return the options of container runtimes that enforce `limits`.

    Swap counts as memory: a program that swaps would measure the disk.
    """
    options = [] if limits.cpus is None else [f"--cpus={limits.cpus:g}"]
    if limits.memory_bytes is not None:
        options += [f"--memory={limits.memory_bytes}", f"--memory-swap={limits.memory_bytes}"]
    return options


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
        """Return a job's image. Raises MisuseError where it has no image."""
        if job.image is None:
            raise MisuseError(f"{self.name} needs an image: --environment {self.name}:IMAGE")
        return job.image


def site_words(variable: str) -> list[str]:
    """Return the words of an environment variable with options, split as a shell would.

    Raises GpuAgentError: a quote is not closed.
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
