"""A small root file system of this machine's own Python, and container runtimes private to the tests."""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gpuagent.environments.support.common import user_name
from tests.support.programs import found, need, unavailable
from tests.support.servers import until

REPOSITORY = Path(__file__).parents[2]
SITE_PACKAGES = Path(sysconfig.get_path("purelib"))
LIBRARY = Path(sysconfig.get_path("stdlib"))
# The workloads and their dependencies.
PACKAGES = (SITE_PACKAGES, REPOSITORY / "proto", REPOSITORY / "agent", REPOSITORY / "workloads")

# Mounted into containers: so the image stays small, and starts quickly where engines copy it.
_MOUNTED = (LIBRARY, *PACKAGES)
_PYTHON_PATH = ":".join(map(str, PACKAGES))

IMAGE = "gpuagent-test"

# Podman's own exceed the limits of a restricted machine.
ULIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096")

# Options of Apptainer's `build`: to compress an image takes forty times as long as all the rest.
UNCOMPRESSED = "--mksquashfs-args=-noI -noD -noF -noX"

_FOLDERS = ("bin", "dev", "etc", "home", "mnt", "proc", "root", "run", "srv", "sys", "tmp", "usr/bin", "var/tmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A container runtime that works here, with an image in it.

    Attributes:
        environment: the value of `--environment`.
        variables: the environment variables that make the agent use it.
        list_containers: the command that lists containers; empty where they are only processes.
    """

    environment: str
    variables: dict[str, str] = field(default_factory=dict)
    list_containers: Sequence[str] = ()

    def containers(self) -> list[str]:
        return _done(*self.list_containers).split() if self.list_containers else []

    def around(self, inner: "Runtime") -> "Runtime":
        """Return this runtime with containers of another one inside, which are only processes."""
        return replace(
            self,
            environment=f"{self.environment}+{inner.environment}",
            variables={**self.variables, **inner.variables},
        )


def on(*names: str) -> pytest.MarkDecorator:
    """Return the mark of a test that is run in each of these runtimes."""
    return pytest.mark.parametrize("runtime", names, indirect=True)


def make_root(root: Path) -> Path:
    """Fill the folder `root` with a shell, a Python but for its library, and the libraries that torch wants."""
    for folder in _FOLDERS:
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    for name in ("hosts", "resolv.conf"):
        (root / "etc" / name).touch()
    shutil.copy(found("busybox"), root / "bin/busybox")
    for name in ("sh", "sleep", "echo", "true", "id"):
        (root / "bin" / name).symlink_to("busybox")
    _copy_python(root)
    return root


def _copy_python(root: Path) -> None:
    python = Path(sys.executable).resolve()
    extensions = [*LIBRARY.glob("lib-dynload/*.so"), *SITE_PACKAGES.glob("torch/lib/*.so")]
    for path in {python, *_libraries([python, *extensions])}:
        target = root / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    if not (root / "usr/bin/python3").exists():
        (root / "usr/bin/python3").symlink_to(python)


def _libraries(programs: Sequence[Path]) -> Iterator[Path]:
    for line in _done("ldd", *map(str, programs)).splitlines():
        words = line.split()
        path = next((word for word in words if word.startswith("/") and not word.endswith(":")), None)
        if path and not Path(path).is_relative_to(SITE_PACKAGES):
            yield Path(path)


@contextmanager
def docker(root: Path) -> Iterator[Runtime]:
    """Start a Docker Engine of our own, with the image."""
    with short_folder() as folder, (folder / "log").open("w") as log:
        address = f"unix://{folder}/socket"
        places = [f"--host={address}", f"--data-root={folder}/data", f"--exec-root={folder}/exec"]
        restrictions = ["--iptables=false", "--ip6tables=false", "--bridge=none"]
        need("docker", "dockerd")
        command = ["dockerd", *places, f"--pidfile={folder}/pid", *restrictions]
        daemon = subprocess.Popen(command, stdout=log, stderr=log)
        client = ["docker", "--host", address]
        try:
            until(lambda: daemon.poll() is not None or answers([*client, "info"]), "Docker Engine")
            if daemon.poll() is not None:
                unavailable(f"Docker Engine does not start: {(folder / 'log').read_text()[-300:]}")
            import_image(client, root, IMAGE)
            yield _engine("docker", client, ["--network=host"])
        finally:
            daemon.terminate()
            daemon.wait()
            # The daemon leaves the name of its network namespace mounted.
            subprocess.run(["umount", f"{folder}/exec/netns/default"], capture_output=True, check=False)


@contextmanager
def podman(root: Path) -> Iterator[Runtime]:
    """Give Podman a store of our own, with the image."""
    with short_folder() as folder:
        places = ["--root", f"{folder}/data", "--runroot", f"{folder}/run"]
        need("podman", "catatonit", "runc")
        client = ["podman", *places, "--runtime", "runc", "--cgroup-manager", "cgroupfs"]
        try:
            import_image(client, root, IMAGE)
            yield _engine("podman", client, ["--network=host", *ULIMITS])
        finally:
            # Its overlay driver leaves its folder mounted on itself.
            subprocess.run(["umount", f"{folder}/data/overlay"], capture_output=True, check=False)


def charliecloud(root: Path) -> Runtime:
    """Return Charliecloud with the folder `root` as the image."""
    need("ch-run")
    # ch-run makes no mount points in an image that it cannot write; /tmp is the node's own inside.
    elsewhere = [path for path in _MOUNTED if not path.is_relative_to("/tmp")]
    for path in elsewhere:
        (root / path.relative_to("/")).mkdir(parents=True, exist_ok=True)
    words = [*(f"--bind={path}" for path in elsewhere), f"--set-env=PYTHONPATH={_PYTHON_PATH}"]
    return Runtime(environment=f"charliecloud:{root}", variables={"GPUAGENT_CHARLIECLOUD_ARGS": " ".join(words)})


def apptainer(root: Path, folder: Path, name: str = "apptainer") -> Runtime:
    """Return Apptainer, by one of its names, with the folder `root` as a .sif file in `folder`."""
    client = find_apptainer(name)
    image = folder / "image.sif"
    if not image.exists():
        _done(str(client), "build", UNCOMPRESSED, str(image), str(root))
    words = [f"--bind={path}:{path}:ro" for path in _MOUNTED] + [f"--env=PYTHONPATH={_PYTHON_PATH}"]
    variable = f"GPUAGENT_{name.upper()}"
    return Runtime(
        environment=f"{name}:{image}", variables={variable: str(client), f"{variable}_ARGS": " ".join(words)}
    )


def find_apptainer(name: str = "apptainer") -> Path:
    """Return Apptainer's program; skip the test without it."""
    if not (program := apptainer_program(name)):
        # In CI, too: Debian has no package of it.
        pytest.skip(f"needs {name}; install Apptainer 1.3 or newer, or name its folder by GPUAGENT_TEST_APPTAINER")
    need("mksquashfs", "squashfuse", "fusermount3")
    return program


def apptainer_program(name: str = "apptainer") -> Path | None:
    """Return Apptainer's program, in the folder of GPUAGENT_TEST_APPTAINER or on PATH; None: it is not installed."""
    folder = os.environ.get("GPUAGENT_TEST_APPTAINER")
    program = shutil.which(name, path=f"{folder}/bin:{folder}" if folder else None)
    return Path(program) if program else None


def need_fakeroot() -> None:
    """Skip the test where Apptainer cannot build with --fakeroot, with the remedy."""
    need("newuidmap")
    user = user_name()
    if not any(line.startswith(f"{user}:") for line in Path("/etc/subuid").read_text().splitlines()):
        unavailable(f"--fakeroot needs a range of users: echo {user}:100000:65536 | tee -a /etc/subuid /etc/subgid")


def fakeroot_options() -> str:
    """Return GPUAGENT_APPTAINER_BUILD_ARGS for builds as an ordinary user makes them, in less time."""
    return f"--fakeroot {shlex.quote(UNCOMPRESSED)}"


def _engine(name: str, client: Sequence[str], options: Sequence[str]) -> Runtime:
    words = [*options, *(f"--volume={path}:{path}:ro" for path in _MOUNTED), f"--env=PYTHONPATH={_PYTHON_PATH}"]
    variable = f"GPUAGENT_{name.upper()}"
    return Runtime(
        environment=f"{name}:{IMAGE}",
        variables={variable: " ".join(client), f"{variable}_ARGS": " ".join(words)},
        list_containers=[*client, "ps", "--all", "--format", "{{.Names}}"],
    )


def import_image(client: Sequence[str], root: Path, name: str, *options: str) -> None:
    """Give an engine the folder `root` as the image `name`."""
    with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
        with tarfile.open(archive.name, "w") as tar:
            tar.add(root, arcname=".")
        _done(*client, "import", *options, archive.name, name)


@contextmanager
def short_folder() -> Iterator[Path]:
    """Make a folder whose path is short: sockets in it take 108 characters."""
    with tempfile.TemporaryDirectory(prefix="ga-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def answers(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _done(*command: str) -> str:
    """Return the output of a command; skip the test, or fail it in CI, where it fails."""
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        unavailable(f"{' '.join(command[:3])} … gave {ended.returncode}: {ended.stderr[-300:]}")
    return ended.stdout
