"""The RunSpec of a command line."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuagent.cli.joint import join_nodes
from gpuagent.environments import split_name
from gpuagent_common.cli import parse_pairs
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
    """Return the request of `run_options`.

    Args:
        workload: a built-in workload's name, or None with a program.
        program: any program and its arguments, or empty with a workload.
        words: the words after the workload's name: --key value, --key=value.

    Raises:
        MisuseError: a word is no parameter, one is given twice, or the experiment's name or a limit is invalid.
    """
    kind, image = split_name(environment)
    spec = RunSpec(
        workload=workload or "",
        command=list(program),
        parameters=parse_pairs([*parameters, *_word_parameters(words)], "--param"),
        repeats=repeat,
        first_repeat=first_repeat,
        environment=kind,
        image=image,
        interference=list(beside),
        labels=dict(labels),
        experiment=check_name(experiment, "--experiment") if experiment else "",
        timeout_seconds=timeout or 0,
        working_directory=str(Path.cwd()) if program else "",
    )
    if nodes > 1:
        join_nodes(spec, nodes, job, os.environ)
    make_limits(cpus, memory, changes).write(spec)
    return spec


def _word_parameters(words: Sequence[str]) -> list[str]:
    """Return --key value, --key=value and the switch --key as KEY=VALUE texts."""
    parameters: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise MisuseError(
                f"unexpected argument {word!r}. Pass parameters as --name value, or run another program with: "
                "run -- PROGRAM"
            )
        name, equals, value = word[2:].partition("=")
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        parameters.append(f"{name}={value}")
    return parameters
