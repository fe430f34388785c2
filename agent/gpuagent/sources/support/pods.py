"""Which pod and container a process is in, by the name of its control group."""

import re
from dataclasses import dataclass
from pathlib import Path

from gpuagent.sources.support.cgroups import V2, parse_memberships
from gpuagent.sources.support.processes import read_process_file

_POD = re.compile(
    r"""/ (?: [^/]*kubepods[^/]*-pod | pod )  # systemd's slices repeat their parents' names, cgroupfs' folders do not
    ( [0-9a-f]{8} (?: [-_][0-9a-f]{4} ){3} [-_] [0-9a-f]{12}  # in a slice's name _ stands for -
    | [0-9a-f]{32} )  # static pods go by the hash of their file
    (?: \.slice )? (?= [/:] | $ )""",
    re.VERBOSE,
)

# docker-ID.scope, cri-containerd-ID.scope, crio-ID.scope, libpod-ID.scope, a bare ID, and SLICE:cri-containerd:ID.
_CONTAINER = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?=/|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a process runs.

    Attributes:
        pod_uid: its pod's metadata.uid, for static pods their config hash; None: in no pod.
        container_id: 64 hexadecimal digits; None: in no container of an engine that names its groups so.
    """

    pod_uid: str | None
    container_id: str | None


def parse_place(cgroup: str) -> Place:
    """Return what the text of a /proc/PID/cgroup, as the host sees it, tells.

    Containers may have groups of their own below their container's; the outermost names count.
    """
    memberships = parse_memberships(cgroup)
    # In hybrid hierarchies systemd's own has the names; version 2 alone has but one.
    paths = [memberships[name] for name in ("name=systemd", V2, "memory") if name in memberships]
    places = [Place(pod_uid=_pod_uid(path), container_id=_first(_CONTAINER, path)) for path in paths]
    return next((place for place in places if place.container_id), Place(pod_uid=None, container_id=None))


def place_of(proc: Path, pid: int) -> Place | None:
    """Return where a process runs, or None where it is gone. `proc` must be the host's."""
    text = read_process_file(proc, pid, "cgroup")
    return None if text is None else parse_place(text)


def _pod_uid(path: str) -> str | None:
    uid = _first(_POD, path)
    return uid and uid.replace("_", "-")


def _first(pattern: re.Pattern[str], path: str) -> str | None:
    match = pattern.search(path)
    return match[1] if match else None
