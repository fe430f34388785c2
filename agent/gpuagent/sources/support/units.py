"""Units of work that have an owner, as control groups and variables of processes name them."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from gpuagent.sources.support.cgroups import parse_memberships
from gpuagent.sources.support.gpu_processes import parse_place

# Slurm's groups: /slurm/uid_UID/job_ID/… in version 1, …/slurmstepd.scope/job_ID/… in version 2; with several daemons
# on a node their names have the node's.
_SLURM = re.compile(r"/[^/]*slurm[^/]*(?:/uid_\d+)?/(job_(\d+))(?=/|$)(?:/step_(\w{1,12}))?")

# The numbers of the steps that have names, as slurm.h has them.
_STEPS = {0xFFFFFFFA: "interactive", 0xFFFFFFFB: "batch", 0xFFFFFFFC: "extern"}

# Anyone can set any variable: longer numbers are none of Slurm's, and no node has more GPUs.
_NUMBER = re.compile(r"[0-9]{1,12}")
_MOST_GPUS = 64

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
        if job := _SLURM.search(path):
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


def slurm_step(cgroup: str, variables: Mapping[str, str]) -> str | None:
    """Return the step of a job's process, as `sacct` calls it after the dot; None: nothing says.

    Its control group has it, else its variables. Those of the batch script's processes have none, but name the node,
    which distinguishes them from the shell of a mere allocation.
    """
    for path in parse_memberships(cgroup).values():
        job = _SLURM.search(path)
        if job and job[3]:
            return job[3]
    number = parse_count(variables, "SLURM_STEP_ID")
    if number is not None:
        return _STEPS.get(number, str(number))
    return "batch" if "SLURMD_NODENAME" in variables else None


def cut_path(path: str, group: str) -> str | None:
    """Return `path` up to the folder `group`; None: it is not below one."""
    parts = path.split("/")
    return "/".join(parts[: parts.index(group) + 1]) if group in parts else None


def parse_environment(content: str) -> dict[str, str]:
    """Return the variables of a /proc/PID/environ."""
    pairs = (pair.partition("=") for pair in content.split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def parse_count(variables: Mapping[str, str], name: str) -> int | None:
    """Return the number that a variable has; None: it has none."""
    text = variables.get(name, "")
    return int(text) if _NUMBER.fullmatch(text) else None


def slurm_job(variables: Mapping[str, str]) -> str | None:
    """Return what people call the job of a process: its number, or that of its array and its own in there."""
    array, task = (parse_count(variables, f"SLURM_ARRAY_{name}_ID") for name in ("JOB", "TASK"))
    job = parse_count(variables, "SLURM_JOB_ID")
    if array is not None and task is not None:
        return f"{array}_{task}"
    return None if job is None else str(job)


def held_gpus(kind: str, variables: Mapping[str, str], uuids: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the UUIDs of the GPUs that are allocated to a job or container; None: nothing says.

    A program's own CUDA_VISIBLE_DEVICES is a choice among all GPUs. Within a job it counts from the job's first GPU,
    and Slurm's own variables from the node's.
    """
    names = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS") if kind == "slurm" else ("NVIDIA_VISIBLE_DEVICES",)
    if kind not in ("slurm", "pod", "docker", "podman", "container"):
        return None
    for name in names:
        given = variables.get(name, "")
        if given and given not in ("void", "none", "all"):
            words = given.split(",", _MOST_GPUS)[:_MOST_GPUS]
            return tuple(filter(None, (_uuid_of(word.strip(), uuids) for word in words)))
    # Slurm sets its variables where a job has GPUs, and there alone.
    return () if kind == "slurm" and "SLURM_JOB_ID" in variables else None


def _uuid_of(word: str, uuids: tuple[str, ...]) -> str | None:
    if _NUMBER.fullmatch(word):
        return uuids[int(word)] if int(word) < len(uuids) else None
    return word if word.startswith(("GPU-", "MIG-")) else None
