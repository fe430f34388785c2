"""Docker, whose daemon starts the container, and Podman, which needs neither a daemon nor root."""

import csv
import io
import json
import os
import re
import shutil
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from gpuagent.environments.environment import (
    Ending,
    EnvironmentUnavailableError,
    Image,
    ImageUnavailableError,
    Job,
    Launch,
    Span,
)
from gpuagent.environments.support.common import (
    ClientError,
    Container,
    ask_client,
    cache_directory,
    check_machine,
    has_nvidia_gpu,
    has_run,
    last_line,
    limit_options,
    machine_of,
    need_name,
    need_program,
    read_run_file,
    site_words,
    variables,
    working_directory,
    writable_places,
)
from gpuagent_common.folders import expand_user
from gpuagent_common.limits import Limits

# The beginnings of a site's options that request GPUs themselves.
_GPU_REQUESTS = (
    "--gpus",
    "--runtime",
    "nvidia.com/gpu",
    "--device=nvidia.com/gpu",
    "/dev/nvidia",
    "--device=/dev/nvidia",
)

# Engines refuse these twice: a run's own replaces the site's.
_ONCE = {"--network": "network", "--net": "network", "--ipc": "ipc", "--pid": "pid", "--shm-size": "shm-size"}

# What is asked of a container that has ended: whether memory ran out, and its times.
_ENDING = "{{.State.OOMKilled}} {{json .State.StartedAt}} {{json .State.FinishedAt}}"
_TIMES = re.compile(r'^(?:true|false) "([^"]+)" "([^"]+)"$', re.MULTILINE)

# More than the client prints of an ended container.
_AFTERWARDS_BYTES = 64 * 1024
_RFC_3339 = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[-+]\d\d:\d\d)")

# The exit code when the engine failed before it started the program.
_ENGINE_FAILED = 125

# The last lines of a client's error message, which do not name the mistake.
_HINT = re.compile(r"^(?:Usage: .*|(?:Run|See) '.*--help'.*)$", re.MULTILINE)

# The name that `gpuagent image build` gives, which no registry has.
WORKLOADS_IMAGE = "gpuagent-workloads"


class Engine(Container):
    """A container engine.

    Two environment variables adapt it to a site: GPUAGENT_NAME is the client with its own options, such as
    `docker --context lab`; GPUAGENT_NAME_ARGS are options of its `run`, such as `--memory 8g`.
    """

    # The remedy where it is not installed.
    _install: str
    # The options that request all GPUs; left out where the site's options name GPUs themselves.
    _gpu_options: Sequence[str]

    def check(self) -> None:
        """Check that the engine answers this user."""
        need_program(self._client()[0], self._install)
        try:
            ask_client([*self._client(), "info", "--format", "{{json .}}"])
        except ClientError as error:
            reason, _, _ = str(error).partition(". ")
            raise EnvironmentUnavailableError(
                f"{self.name} does not answer: {reason}", self._remedy(str(error))
            ) from error

    def find_image(self, name: str | None) -> Image:
        """Return the image called `name`."""
        name = need_name(self.name, name, "IMAGE")
        try:
            (found,) = json.loads(ask_client([*self._client(), "image", "inspect", name]))
        except (ClientError, ValueError) as error:
            is_own = name.partition(":")[0] == WORKLOADS_IMAGE
            remedy = f"gpuagent image build {self.name}" if is_own else f"{self.name} pull {name}"
            raise ImageUnavailableError(f"there is no image {name!r} here; run: {remedy} ({error})") from error
        image = Image(
            name=name,
            # The hash of its configuration and layers: the same in every engine, pulled or built.
            digest=f"sha256:{found['Id'].removeprefix('sha256:')}",
            architecture=machine_of(found.get("Architecture")),
            size_bytes=found.get("Size"),
            layers=len((found.get("RootFS") or {}).get("Layers") or ()) or None,
        )
        return check_machine(image)

    def check_limits(self, limits: Limits) -> None:
        """Accept every limit."""

    def launch(self, job: Job) -> Launch:
        """Return the command that starts `job` in a container named after its run, and those that remove it."""
        client, container = self._client(), container_name(job.run_id)
        image = job.image.name if job.image else ""
        # The program replaces the image's entry point, which may do anything with its arguments.
        program = [f"--entrypoint={job.program[0]}", image, *job.program[1:]]
        # The site's options and a run's own, without those of the site that may be given once and the run has.
        given = {_ONCE[name] for word in job.options if (name := word.partition("=")[0]) in _ONCE}
        kept, words = [], iter(site_words(f"GPUAGENT_{self.name.upper()}_ARGS"))
        for word in words:
            name, equals, _ = word.partition("=")
            if _ONCE.get(name) not in given:
                kept.append(word)
            elif not equals:
                next(words, None)  # its value
        site = [*kept, *job.options]
        cache = cache_directory(self.name)
        options = ["--init", "--pull", "never", "--log-driver", "none", *self._user_options()]
        options += [f"--env={name}={value}" for name, value in variables(job, cache).items()]
        options.append(f"--workdir={working_directory(job)}")
        options += [mount_option(place) for place in (cache, *writable_places(job))]
        options += [mount_option(place, read_only=True) for place in job.data]
        options += limit_options(job.limits)
        if not any(word.startswith(("--ipc", "--shm-size")) for word in site):
            # As large as the node's: engines give 64 MB, too little for batches of data-loading workers.
            system = os.statvfs("/dev/shm")  # noqa: S108
            options.append(f"--shm-size={system.f_blocks * system.f_frsize}")
        if has_nvidia_gpu() and not any(word.startswith(_GPU_REQUESTS) for word in site):
            options += self._gpu_options
        return Launch(
            command=[*client, "run", "--name", container, *options, *site, *program],
            afterwards=[
                [*client, "inspect", "--format", _ENDING, container],
                [*client, "rm", "--force", "--volumes", container],
            ],
            find_root=partial(self._find_root, container, job.run_id),
            root_is_program="--init=false" in (*site_words(f"GPUAGENT_{self.name.upper()}_ARGS"), *job.options),
            passes_signals=True,
            change_cpus=lambda cpus: [*client, "update", f"--cpus={cpus:g}", container],
        )

    def find_span(self, run_directory: Path) -> Span:
        """Return the times of the container's first process: its client ends some time later."""
        said = read_run_file(run_directory / "afterwards", 0, _AFTERWARDS_BYTES)
        times = _TIMES.search(said.decode(errors="replace"))
        started, ended = (read_time(text) for text in times.groups()) if times else (None, None)
        return Span(started_unix_nano=started, ended_unix_nano=ended)

    def explain_own(self, ending: Ending) -> str | None:
        """Return why the kernel ended the container, or the engine did not start it."""
        if ending.afterwards.startswith("true"):
            return f"{ending.memory_limit} ran out, and the kernel ended it"
        if ending.exit_code == _ENGINE_FAILED:
            return f"{self.name} could not start it: {last_line(_HINT.sub('', ending.stderr))}"
        return super().explain_own(ending)

    def _client(self) -> list[str]:
        return site_words(f"GPUAGENT_{self.name.upper()}") or [self.name]

    def _user_options(self) -> Sequence[str]:
        return ["--user", f"{os.getuid()}:{os.getgid()}"]

    def _remedy(self, error: str) -> str:
        return f"see the output of `{' '.join(self._client())} info`: {error}"

    def _find_root(self, container: str, run_id: str) -> int | None:
        """Return the container's first process; None: there is no such process, or it cannot be seen from here."""
        try:
            text = ask_client([*self._client(), "inspect", "--format", "{{.State.Pid}}", container])
        except ClientError:
            return None
        pid = int(text) if text.strip().isdecimal() else 0
        return pid if pid and has_run(pid, run_id) else None


def read_time(text: str) -> int | None:
    """Return a time of RFC 3339 in Unix nanoseconds; None: it is none."""
    parts = _RFC_3339.fullmatch(text)
    if parts is None:
        return None
    try:
        seconds = datetime.fromisoformat(f"{parts[1]}{parts[3].replace('Z', '+00:00')}").timestamp()
    except (ValueError, OverflowError):
        return None
    return int(seconds) * 1_000_000_000 + int((parts[2] or "").ljust(9, "0")[:9])


def container_name(run_id: str) -> str:
    """Return the name of a run's container: engines take letters and digits of ASCII."""
    return f"gpuagent-{re.sub(r'[^a-zA-Z0-9_.-]', '_', run_id)}"


def mount_option(place: Path, *, read_only: bool = False) -> str:
    """Return the option that mounts a place at the same path; engines read it as a line of CSV."""
    fields = ["type=bind", f"source={place}", f"target={place}", *(["readonly"] if read_only else [])]
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return f"--mount={text.getvalue()}"


class Docker(Engine):
    """Runs in a Docker container."""

    name = "docker"
    _install = "install Docker Engine (Debian, Ubuntu: apt-get install docker.io), or use podman or apptainer"
    _gpu_options = ("--gpus", "all")

    def _user_options(self) -> Sequence[str]:
        try:
            security = ask_client([*self._client(), "info", "--format", "{{.SecurityOptions}}"])
        except ClientError:
            return super()._user_options()
        # The user of a rootless daemon is the container's root.
        return [] if "name=rootless" in security else super()._user_options()

    def _remedy(self, error: str) -> str:
        if "permission denied" in error:
            return "let the administrator add you to the group docker, or use podman or apptainer"
        return "start the daemon (systemctl start docker), or name its socket in DOCKER_HOST"


# Where Podman looks for its helpers besides PATH: `helper_binaries_dir` in containers.conf(5).
_HELPERS = "/usr/local/libexec/podman:/usr/local/lib/podman:/usr/libexec/podman:/usr/lib/podman:/usr/libexec/catatonit"
_CONFIGURATIONS = ("/usr/share/containers", "/etc/containers", "~/.config/containers")
# A site that sets one of these names its own init, or runs Podman on another machine.
_OWN_INIT = re.compile(r"^\s*(?:init_path|helper_binaries_dir)\s*=", re.MULTILINE)
_REMOTE = ("--remote", "--url", "--connection")


class Podman(Engine):
    """Runs in a Podman container."""

    name = "podman"
    _install = "install Podman (Debian, Ubuntu: apt-get install podman catatonit)"
    # By the Container Device Interface: `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` describes the GPUs.
    _gpu_options = ("--device", "nvidia.com/gpu=all")

    def check(self) -> None:
        """Check that Podman answers and has an init for its containers: `podman info` does not report that."""
        super().check()
        if not self._has_init():
            remedy = (
                "install it (Debian, Ubuntu: apt-get install catatonit), or add --init-path to GPUAGENT_PODMAN_ARGS"
            )
            raise EnvironmentUnavailableError("podman lacks catatonit, the init of its containers", remedy)

    def _has_init(self) -> bool:
        if shutil.which("catatonit", path=f"{os.environ.get('PATH', '')}:{_HELPERS}"):
            return True
        words = [*self._client(), *site_words("GPUAGENT_PODMAN_ARGS")]
        if "CONTAINER_HOST" in os.environ or any(word.startswith(("--init-path", *_REMOTE)) for word in words):
            return True
        folders = [expand_user(folder) / "containers.conf" for folder in _CONFIGURATIONS]
        named = os.environ.get("CONTAINERS_CONF")
        files = [Path(named)] if named else folders
        return any(_OWN_INIT.search(file.read_text(errors="replace")) for file in files if file.is_file())

    def _user_options(self) -> Sequence[str]:
        return [*(["--userns=keep-id"] if os.getuid() else []), *super()._user_options()]
