"""Turns a command line into what agents are asked for."""

import time
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from gpuagent_common.errors import MisuseError
from gpuagent_common.limits import make_limits
from gpuagent_proto.v1.run_pb2 import RunSpec

_NAME_CHARACTERS = 100


def run_spec(
    workload: str | None,
    program: Sequence[str],
    *,
    parameters: Sequence[str],
    repeat: int,
    environment: str,
    beside: Sequence[str],
    labels: Sequence[str],
    experiment: str | None,
    timeout_seconds: float | None,
    cpus: float | None,
    memory: str | None,
    changes: Sequence[str],
) -> RunSpec:
    """Return what the options ask for. The agents know their workloads and CPUs, and refuse what makes no sense there.

    Raises:
        MisuseError: there is neither a workload nor a program, or both; an option is not of its form.
    """
    if bool(workload) == bool(program):
        raise MisuseError("give either a workload or `-- PROGRAM`")
    kind, _, image = environment.partition(":")
    spec = RunSpec(
        workload=workload or "",
        command=program,
        parameters=_pairs(parameters, "--param"),
        repeats=repeat,
        environment=kind,
        image=image,
        interference=beside,
        labels=_names(_pairs(labels, "--label")),
        experiment=_name(experiment, "--experiment") if experiment else _made_up(workload or PurePath(program[0]).name),
        timeout_seconds=timeout_seconds or 0,
    )
    make_limits(cpus, memory, changes).write(spec)
    return spec


def _made_up(name: str) -> str:
    """Return a name for all runs of this launch, on whichever agents."""
    return f"{name[:60]}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"


def _names(labels: Mapping[str, str]) -> Mapping[str, str]:
    for text in (*labels, *labels.values()):
        _name(text, "--label")
    return labels


def _name(text: str, option: str) -> str:
    if not text.strip() or len(text) > _NAME_CHARACTERS or not text.isprintable():
        raise MisuseError(f"{option} takes up to {_NAME_CHARACTERS} printable characters, and not only blanks")
    return text


def _pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise MisuseError(f"{option} takes NAME=VALUE, not {text!r}")
        if name in found:
            raise MisuseError(f"{option} {name} is given twice")
        found[name] = value
    return found
