"""Turns a command line into what agents are asked for."""

import time
from collections.abc import Sequence

from gpuagent_common.cli import parse_labels, parse_pairs, word_parameters
from gpuagent_common.errors import MisuseError
from gpuagent_common.limits import make_limits
from gpuagent_common.program_name import check_program_name, name_program
from gpuagent_proto.v1.run_pb2 import RunSpec


def run_spec(
    workload: str | None,
    program: Sequence[str],
    words: Sequence[str] = (),
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
    name: str | None = None,
    observe: bool = False,
    pattern: str | None = None,
    items_per_step: float | None = None,
) -> RunSpec:
    """Return what the options ask for. The agents know their workloads and CPUs, and refuse what makes no sense there.

    Raises:
        MisuseError: there is neither a workload nor a program, or both; an option is not of its form.
    """
    if bool(workload) == bool(program):
        raise MisuseError("give either a workload or `-- PROGRAM`")
    if name is not None and not program:
        raise MisuseError("--name is for programs of your own; a built-in workload has its name")
    kind, _, image = environment.partition(":")
    # One name for all runs of this launch, on whichever agents.
    named = workload or name or name_program(program)
    made_up = f"{named[:60]}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
    spec = RunSpec(
        workload=workload or "",
        command=program,
        parameters=parse_pairs([*parameters, *word_parameters(words)], "--param"),
        repeats=repeat,
        environment=kind,
        image=image,
        interference=beside,
        labels=parse_labels(labels),
        experiment=experiment or made_up,
        timeout_seconds=timeout_seconds or 0,
        name="" if name is None else check_program_name(name),
        observe=observe,
        pattern=pattern or "",
        items_per_step=items_per_step or 0,
    )
    make_limits(cpus, memory, changes).write(spec)
    return spec
