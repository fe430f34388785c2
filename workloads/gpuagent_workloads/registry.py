"""The registry of all workloads. A new one is a file or folder in `suite` and a line here."""

import dataclasses
import difflib
import json
import textwrap
from collections.abc import Iterable, Sequence
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
from gpuagent_workloads.training.config import TrainingConfig
from gpuagent_workloads.workload import Parameter, Workload, parameters_of

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


_WIDTH = 80
_TEXTS = ("kind", "study", "data", "memory")


def as_json(workloads: Iterable[Workload[Any]]) -> str:
    """Return a JSON array with an object for each workload; docs/workloads.md describes its fields."""
    objects = []
    for workload in workloads:
        shown: dict[str, Any] = {name: getattr(workload, name) for name in ("name", "summary", *_TEXTS)}
        every = [dataclasses.asdict(parameter) for parameter in parameters_of(workload.config)]
        for parameter in every:
            for name in ("choices", "minimum", "maximum"):
                if parameter[name] in (None, ()):
                    del parameter[name]
        objects.append({**shown, "parameters": every})
    return json.dumps(objects, indent=2)


def as_text(workloads: Sequence[Workload[Any]]) -> str:
    """Return a paragraph and a table of parameters for each workload; parameters of all training workloads once."""
    paragraphs = []
    for workload in workloads:
        facts = [_wrap(f"  {name:<8}", getattr(workload, name)) for name in _TEXTS]
        shared = parameters_of(TrainingConfig) if issubclass(workload.config, TrainingConfig) else []
        own = [parameter for parameter in parameters_of(workload.config) if parameter not in shared]
        heading = "  parameters, beside those of all training workloads" if shared else "  parameters"
        paragraphs.append(
            "\n".join([_wrap(f"{workload.name}: ", workload.summary, indent="  "), *facts, heading, *_table(own)])
        )
    if any(issubclass(workload.config, TrainingConfig) for workload in workloads):
        paragraphs.append("\n".join(["Parameters of all training workloads", *_table(parameters_of(TrainingConfig))]))
    return "\n\n".join(paragraphs)


def _table(parameters: Sequence[Parameter]) -> list[str]:
    width = max(len(parameter.name) for parameter in parameters)
    return [_wrap(f"    --{parameter.name:<{width}}  ", _describe(parameter)) for parameter in parameters]


def _describe(parameter: Parameter) -> str:
    notes = [] if parameter.default is None else [f"default {parameter.default}"]
    if parameter.choices:
        notes.insert(0, "|".join(parameter.choices))
    return f"{parameter.help} [{'; '.join(notes)}]" if notes else parameter.help


def _wrap(label: str, text: str, indent: str | None = None) -> str:
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=label,
        subsequent_indent=" " * len(label) if indent is None else indent,
        break_on_hyphens=False,
    )
