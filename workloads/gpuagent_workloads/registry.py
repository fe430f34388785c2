"""The registry of all workloads. A new one is a file or folder in `suite` and a line here."""

import difflib
from typing import Any

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.suite import (
    bert,
    biggan,
    ceilings,
    cifar10,
    classification,
    collectives,
    cpu_burn,
    gcn,
    gpt,
    gpu_burn,
    layer,
    llama,
    memory_limit,
    mnist,
    sentiment,
    serve_load,
)
from gpuagent_workloads.workload import Workload

WORKLOADS: tuple[Workload[Any], ...] = (
    mnist.WORKLOAD,
    cifar10.WORKLOAD,
    *classification.WORKLOADS,
    gcn.WORKLOAD,
    sentiment.WORKLOAD,
    gpt.WORKLOAD,
    llama.WORKLOAD,
    bert.WORKLOAD,
    biggan.WORKLOAD,
    layer.WORKLOAD,
    memory_limit.WORKLOAD,
    serve_load.WORKLOAD,
    ceilings.WORKLOAD,
    collectives.WORKLOAD,
    cpu_burn.WORKLOAD,
    gpu_burn.WORKLOAD,
)


def find(name: str) -> Workload[Any]:
    """Return the workload of that name, written with dashes or underscores. Raises MisuseError: the name is unknown."""
    by_name = {workload.name: workload for workload in WORKLOADS}
    dashed = name.replace("_", "-")
    if dashed in by_name:
        return by_name[dashed]
    close = difflib.get_close_matches(dashed, by_name, n=1)
    remedy = f"did you mean {close[0]}?" if close else f"choose from {', '.join(by_name)}"
    raise MisuseError(f"unknown workload {name}: {remedy}")
