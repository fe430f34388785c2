"""What the command lines of Docker and Podman have in common."""

import csv
import io
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from gpuagent.environments.environment import Ending, EnvironmentUnavailableError, Image, Job, Launch
from gpuagent.environments.support.clients import ClientError, ask_client, inspect, last_line, need_program
from gpuagent.environments.support.images import check_machine, machine_of, need_name
from gpuagent.environments.support.inside import (
    PYTHON,
    cache_directory,
    explain_inside,
    has_nvidia_gpu,
    signal_of_shell_code,
    site_words,
    variables,
    working_directory,
    writable_places,
)
from gpuagent.environments.support.limits import limit_options
from gpuagent.environments.support.proc import has_run
from gpuagent_common.errors import MisuseError
from gpuagent_common.limits import Limits

# How a site's options begin that ask for GPUs in their own way.
_GPU_REQUESTS = ("--gpus", "--runtime", "nvidia.com/gpu", "--device=nvidia.com/gpu")

# The exit code when not the program failed but the engine, before it started.
_ENGINE_FAILED = 125

# What clients say last of a mistake, which says nothing of it.
_HINT = re.compile(r"^(?:Usage: .*|(?:Run|See) '.*--help'.*)$", re.MULTILINE)


class Engine:
    """A container engine. Two environment variables adapt it to a site: GPUAGENT_NAME is the client and its own
    options, as `docker --context lab`, GPUAGENT_NAME_ARGS are options of its `run`, as `--memory 8g`."""

    name: str
    python: str | None = PYTHON
    has_image_paths = False
    # What to do where it is not installed.
    _install: str
    # How all GPUs are asked for; left out where the site's options say something of GPUs themselves.
    _gpu_options: Sequence[str]
    # Whether its word on a lack of memory cannot be relied on.
    _is_silent_of_memory = False

    def check(self) -> None:
        """See whether the engine answers.

        Raises:
            EnvironmentUnavailableError: it is not installed, or does not answer this user.
        """
        need_program(self._client()[0], self._install)
        try:
            ask_client([*self._client(), "info", "--format", "{{json .}}"])
        except ClientError as error:
            raise EnvironmentUnavailableError(
                f"{self.name} does not answer: {error}", self._remedy(str(error))
            ) from error

    def find_image(self, name: str | None) -> Image:
        """Return the image called `name`.

        Raises:
            MisuseError: it is not on this node, or for another architecture.
        """
        name = need_name(self.name, name, "IMAGE")
        try:
            found = inspect([*self._client(), "image", "inspect", name])
        except ClientError as error:
            raise MisuseError(f"there is no image {name!r} here; run: {self.name} pull {name} ({error})") from error
        image = Image(
            name=name,
            # What its configuration and layers hash to: the same in every engine, pulled or built.
            digest=f"sha256:{found['Id'].removeprefix('sha256:')}",
            architecture=machine_of(found.get("Architecture")),
            size_bytes=found.get("Size"),
            layers=len((found.get("RootFS") or {}).get("Layers") or ()) or None,
        )
        return check_machine(image)

    def check_limits(self, limits: Limits) -> None:
        """Any limit can be kept."""

    def launch(self, job: Job) -> Launch:
        """Return how `job` is started in a container that is named after its run, and how that is removed."""
        client, container = self._client(), container_name(job.run_id)
        return Launch(
            command=[*client, "run", "--name", container, *self._options(job), *_image_and_program(job)],
            afterwards=[
                [*client, "inspect", "--format", "{{.State.OOMKilled}}", container],
                [*client, "rm", "--force", "--volumes", container],
            ],
            find_root=partial(self._find_root, container, job.run_id),
            passes_signals=True,
            change_cpus=lambda cpus: [*client, "update", f"--cpus={cpus:g}", container],
            is_silent_of_memory=self._is_silent_of_memory,
        )

    def launch_beside(self, job: Job) -> Launch:
        """Return how `job` is started, in a container of its own."""
        return self.launch(job)

    def exit_code(self, code: int) -> int:
        """Return the program's exit code: engines say 128 + its number for a signal."""
        return signal_of_shell_code(code)

    def explain(self, ending: Ending) -> str | None:
        """Return, in words, why the container failed."""
        if ending.is_out_of_memory or ending.afterwards.startswith("true"):
            return "the kernel ended it for lack of memory: it reached the container's limit"
        if ending.exit_code == _ENGINE_FAILED:
            return f"{self.name} could not start it: {last_line(_HINT.sub('', ending.stderr))}"
        return explain_inside(ending)

    def _options(self, job: Job) -> list[str]:
        site = site_words(f"GPUAGENT_{self.name.upper()}_ARGS")
        cache = cache_directory(self.name)
        options = ["--init", "--pull", "never", "--log-driver", "none", *self._user_options()]
        options += [f"--env={name}={value}" for name, value in variables(job, cache).items()]
        options.append(f"--workdir={working_directory(job)}")
        options += [_mount(place) for place in (cache, *writable_places(job))]
        options += [_mount(place, read_only=True) for place in job.data]
        options += limit_options(job.limits)
        if not any(word.startswith(("--ipc", "--shm-size")) for word in site):
            options.append(f"--shm-size={_shared_memory_bytes()}")
        if has_nvidia_gpu() and not any(word.startswith(_GPU_REQUESTS) for word in site):
            options += self._gpu_options
        return [*options, *site]

    def _client(self) -> list[str]:
        return site_words(f"GPUAGENT_{self.name.upper()}") or [self.name]

    def _user_options(self) -> Sequence[str]:
        """Return what lets files in the run directory belong to the agent's user."""
        return ["--user", f"{os.getuid()}:{os.getgid()}"]

    def _remedy(self, said: str) -> str:
        """Return what to do where the engine said this instead of an answer."""
        return f"see what `{' '.join(self._client())} info` says to: {said}"

    def _find_root(self, container: str, run_id: str) -> int | None:
        """Return the container's first process; None: it has none yet, or none that this process can see."""
        try:
            text = ask_client([*self._client(), "inspect", "--format", "{{.State.Pid}}", container])
        except ClientError:
            return None
        pid = int(text) if text.strip().isdecimal() else 0
        return pid if pid and has_run(pid, run_id) else None


def container_name(run_id: str) -> str:
    """Return the name of a run's container: engines take letters and digits of ASCII."""
    return f"gpuagent-{re.sub(r'[^a-zA-Z0-9_.-]', '_', run_id)}"


def _image_and_program(job: Job) -> list[str]:
    """The program takes the place of the image's entry point, which may do anything with its arguments."""
    image = job.image.name if job.image else ""
    return [f"--entrypoint={job.program[0]}", image, *job.program[1:]]


def _mount(place: Path, *, read_only: bool = False) -> str:
    fields = ["type=bind", f"source={place}", f"target={place}", *(["readonly"] if read_only else [])]
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return f"--mount={text.getvalue()}"


def _shared_memory_bytes() -> int:
    """Return the size of the node's /dev/shm. Engines give 64 MB, too little for batches of data-loading workers."""
    system = os.statvfs("/dev/shm")  # noqa: S108
    return system.f_blocks * system.f_frsize
