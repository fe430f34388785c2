"""Turns the command line into a RunSpec."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuagent.cli.joint import join_nodes
from gpuagent.cli.options import pairs
from gpuagent.environments import split_name
from gpuagent_common.errors import MisuseError
from gpuagent_common.limits import make_limits
from gpuagent_common.naming import check_name
from gpuagent_proto.v1.run_pb2 import RunSpec


def run_spec(
    workload: str | None,
    program: Sequence[str],
    words: Sequence[str],
    *,
    labels: Mapping[str, str],
    parameters: tuple[str, ...],
    repeat: int,
    first_repeat: int,
    environment: str,
    beside: tuple[str, ...],
    experiment: str | None,
    timeout: float | None,
    cpus: float | None,
    memory: str | None,
    changes: tuple[str, ...],
    nodes: int,
    job: str | None,
) -> RunSpec:
    """Return what the options of `run_options` ask for.

    Args:
        workload: a built-in workload's name, or None with a program.
        program: any program and its arguments, or nothing with a workload.
        words: what followed the workload's name: --key value, --key=value.

    Raises:
        MisuseError: the words are no parameters, one is given twice, the experiment's name is none, or a limit is none.
    """
    given = pairs(parameters, "--param")
    for name, value in _word_parameters(words).items():
        if name in given:
            raise MisuseError(f"parameter {name} is given twice")
        given[name] = value
    kind, image = split_name(environment)
    spec = RunSpec(
        workload=workload or "",
        command=list(program),
        parameters=given,
        repeats=repeat,
        first_repeat=first_repeat,
        environment=kind,
        image=image,
        interference=list(beside),
        labels=dict(labels),
        experiment=check_name(experiment, "--experiment") if experiment else "",
        timeout_seconds=timeout or 0,
        # A container has the folder only for a program of the user's: a workload needs none there.
        working_directory=str(Path.cwd()) if program or kind == "bare" else "",
    )
    if nodes > 1:
        join_nodes(spec, nodes, job, os.environ)
    make_limits(cpus, memory, changes).write(spec)
    return spec


def _word_parameters(words: Sequence[str]) -> dict[str, str]:
    parameters: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise MisuseError(
                f"what is {word!r} for? Parameters are --name value; other programs run by: run -- PROGRAM"
            )
        name, equals, value = word[2:].partition("=")
        if not equals:
            # A switch stands alone: --compile is --compile=true.
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        if name in parameters:
            raise MisuseError(f"parameter {name} is given twice")
        parameters[name] = value
    return parameters
