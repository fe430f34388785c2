"""Variables of a process by which Slurm and container engines describe its job: name, step, and what it was given."""

import re
from collections.abc import Mapping

from gpuagent.redaction import redact_text
from gpuagent.sources.support.cgroups import parse_memberships
from gpuagent.sources.support.owner import MOST_CHARACTERS, OwnerFacts
from gpuagent.sources.support.units import SLURM_GROUP

# The numbers of the steps that have names, as slurm.h has them.
_STEPS = {0xFFFFFFFA: "interactive", 0xFFFFFFFB: "batch", 0xFFFFFFFC: "extern"}

# Anyone can set any variable: longer numbers are none of Slurm's, and no node has more GPUs.
_NUMBER = re.compile(r"[0-9]{1,12}")
_MOST_GPUS = 64


def parse_environment(content: str) -> dict[str, str]:
    """Return the variables of a /proc/PID/environ."""
    pairs = (pair.partition("=") for pair in content.split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def parse_count(variables: Mapping[str, str], name: str) -> int | None:
    """Return the number that a variable has; None: it has none."""
    text = variables.get(name, "")
    return int(text) if _NUMBER.fullmatch(text) else None


def slurm_step(cgroup: str, variables: Mapping[str, str]) -> str | None:
    """Return the step of a job's process, as `sacct` calls it after the dot; None: nothing says.

    Its control group has it, else its variables. Those of the batch script's processes have none, but name the node,
    which distinguishes them from the shell of a mere allocation.
    """
    for path in parse_memberships(cgroup).values():
        job = SLURM_GROUP.search(path)
        if job and job[3]:
            return job[3]
    number = parse_count(variables, "SLURM_STEP_ID")
    if number is not None:
        return _STEPS.get(number, str(number))
    return "batch" if "SLURMD_NODENAME" in variables else None


def describe_slurm_job(facts: OwnerFacts, variables: Mapping[str, str], *, has_user: bool) -> None:
    """Add a job's names and allocation; its user as well, unless the node knows who that is."""
    # People call a job by its number, or by that of its array and its own in there.
    number, array, task = (parse_count(variables, f"SLURM_{name}_ID") for name in ("JOB", "ARRAY_JOB", "ARRAY_TASK"))
    if array is not None and task is not None:
        facts.job = f"{array}_{task}"
    elif number is not None:
        facts.job = str(number)
    facts.title = _read_name(variables, "NAME")
    facts.account = _read_name(variables, "ACCOUNT")
    facts.place = _read_name(variables, "PARTITION")
    if not has_user:
        facts.user_name = _read_name(variables, "USER") or facts.user_name
    cpus, mib = parse_count(variables, "SLURM_CPUS_ON_NODE"), parse_count(variables, "SLURM_MEM_PER_NODE")
    facts.held_cores = None if cpus is None else float(cpus)
    facts.memory_held_bytes = None if mib is None else mib * 1024**2


def _read_name(variables: Mapping[str, str], name: str) -> str | None:
    text = variables.get(f"SLURM_JOB_{name}")
    return redact_text(text)[:MOST_CHARACTERS] if text else None


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
