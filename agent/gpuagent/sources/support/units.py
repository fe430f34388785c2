"""Units of work that have an owner, as control groups name them."""

import re
from functools import lru_cache
from typing import NamedTuple

from gpuagent.sources.support.cgroups import parse_memberships
from gpuagent.sources.support.gpu_processes import parse_place

# Slurm's groups: /slurm/uid_UID/job_ID/… in version 1, …/slurmstepd.scope/job_ID/… in version 2; with several daemons
# on a node their names have the node's.
SLURM_GROUP = re.compile(r"/[^/]*slurm[^/]*(?:/uid_\d+)?/(job_(\d+))(?=/|$)(?:/step_(\w{1,12}))?")

_ENGINES = {"docker": "docker", "libpod": "podman"}


class Unit(NamedTuple):
    """A unit of work on this node.

    Attributes:
        kind: slurm, pod, docker, podman, container, session, unit or user.
        name: the job's number, the pod's UID, the container's ID, the name of systemd's unit, or the user's number.
        group: the name of its group's folder; its work is there and below. None: it has no group of its own.
    """

    kind: str
    name: str
    group: str | None = None


@lru_cache(maxsize=4096)
def parse_unit(cgroup: str) -> Unit | None:
    """Return the unit that a /proc/PID/cgroup names; None: it names none."""
    paths = [*dict.fromkeys(parse_memberships(cgroup).values())]
    for path in paths:
        if job := SLURM_GROUP.search(path):
            return Unit("slurm", job[2], job[1])
    place = parse_place(cgroup)
    parts = [part for path in paths for part in path.split("/") if part]
    if place.pod_uid:
        named = {place.pod_uid, place.pod_uid.replace("-", "_")}
        return Unit("pod", place.pod_uid, next((part for part in parts if any(each in part for each in named)), None))
    if place.container_id:
        group = next(part for part in parts if place.container_id in part)
        engine = next((_ENGINES[word] for path in paths for word in re.split(r"[/-]", path) if word in _ENGINES), None)
        return Unit(engine or "container", place.container_id, group)
    for part in parts:
        if part.endswith((".service", ".scope")) and part != "init.scope":
            return Unit("session" if re.fullmatch(r"session-\w+\.scope", part) else "unit", part, part)
    return None


def cut_path(path: str, group: str) -> str | None:
    """Return `path` up to the folder `group`; None: it is not below one."""
    parts = path.split("/")
    return "/".join(parts[: parts.index(group) + 1]) if group in parts else None
