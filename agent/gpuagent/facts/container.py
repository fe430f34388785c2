"""Which container the agent runs in."""

from collections.abc import Callable

from gpuagent.facts.surroundings import Surroundings

# What container runtimes leave in the names of control groups and of the files that they mount.
_ORIGINS = (
    ("/var/lib/docker/", "docker"),
    ("/docker/", "docker"),
    ("docker-", "docker"),
    ("libpod", "podman"),
    ("overlay-containers", "podman"),
    ("containerd", "containerd"),
    ("/lxc", "lxc"),
    ("enroot", "enroot"),
)

_MOUNTED_BY_RUNTIMES = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf")


def detect_container(surroundings: Surroundings) -> str:
    """Return docker, podman, apptainer, charliecloud, containerd, cri-o, …, `other` for an unknown one, or none."""
    return next((answer for detect in _DETECTORS if (answer := detect(surroundings))), "none")


def _by_variables(surroundings: Surroundings) -> str | None:
    """HPC runtimes pass a variable; a marker file alone would also be there when an image is only unpacked."""
    environment = surroundings.environment
    if "CH_RUNNING" in environment:
        return "charliecloud"
    if "APPTAINER_CONTAINER" in environment:
        return "apptainer"
    return "singularity" if "SINGULARITY_CONTAINER" in environment else None


def _by_singularity_folder(surroundings: Surroundings) -> str | None:
    return "apptainer" if surroundings.has(".singularity.d") else None


def _by_origin(surroundings: Surroundings) -> str | None:
    """The runtime's name in the control group, or where its own files in /etc come from."""
    traces = _traces(surroundings)
    if "crio" in traces:
        return "cri-o"
    origin = next((answer for trace, answer in _ORIGINS if trace in traces), None)
    return _unless_in_pod(surroundings, origin) if origin == "podman" else origin


def _traces(surroundings: Surroundings) -> str:
    """Return the control group, and where each file comes from that container runtimes mount into /etc."""
    mounts = [line.split(" ") for line in surroundings.proc_text("self/mountinfo").splitlines()]
    origins = [fields[3] for fields in mounts if len(fields) > 4 and fields[4] in _MOUNTED_BY_RUNTIMES]
    return "\n".join([surroundings.proc_text("self/cgroup"), *origins])


def _by_marker_file(surroundings: Surroundings) -> str | None:
    if surroundings.has("run/.containerenv"):
        return _unless_in_pod(surroundings, "podman")
    return "docker" if surroundings.has(".dockerenv") else None


def _unless_in_pod(surroundings: Surroundings, answer: str) -> str:
    """CRI-O leaves the same traces as Podman, of whose libraries it is made, but only runs pods."""
    return "cri-o" if "KUBERNETES_SERVICE_HOST" in surroundings.environment else answer


def _by_declaration(surroundings: Surroundings) -> str | None:
    """What `container=` says, as systemd-nspawn, LXC and podman declare it."""
    return surroundings.environment.get("container") or surroundings.text("run/host/container-manager")


def _by_orchestrator(surroundings: Surroundings) -> str | None:
    """A pod is always in some container."""
    return "other" if "KUBERNETES_SERVICE_HOST" in surroundings.environment else None


_DETECTORS: tuple[Callable[[Surroundings], str | None], ...] = (
    _by_variables,
    _by_singularity_folder,
    _by_origin,
    _by_marker_file,
    _by_declaration,
    _by_orchestrator,
)
