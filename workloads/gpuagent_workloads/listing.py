"""How workloads are listed: for programs as JSON, for people as text that fits 80 columns."""

import dataclasses
import json
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from gpuagent_workloads.parameters import Parameter, parameters_of
from gpuagent_workloads.training.config import TrainingConfig
from gpuagent_workloads.workload import Workload

_WIDTH = 80
_TEXTS = ("kind", "study", "data", "memory")


def as_json(workloads: Iterable[Workload[Any]]) -> str:
    """Return a JSON array with one object for each workload; docs/workloads.md describes its fields."""
    return json.dumps([_as_object(workload) for workload in workloads], indent=2)


def as_text(workloads: Sequence[Workload[Any]]) -> str:
    """Return a paragraph and a table of parameters for each workload, those that training workloads share only once."""
    paragraphs = [_as_paragraph(workload) for workload in workloads]
    if any(_is_training(workload) for workload in workloads):
        paragraphs.append("\n".join(["Parameters of all training workloads", *_table(parameters_of(TrainingConfig))]))
    return "\n\n".join(paragraphs)


def _as_object(workload: Workload[Any]) -> dict[str, Any]:
    texts = {name: getattr(workload, name) for name in ("name", "summary", *_TEXTS)}
    return {**texts, "parameters": [_parameter_as_object(p) for p in parameters_of(workload.config)]}


def _parameter_as_object(parameter: Parameter) -> dict[str, Any]:
    members = dataclasses.asdict(parameter)
    if not parameter.choices:
        del members["choices"]
    return members


def _as_paragraph(workload: Workload[Any]) -> str:
    facts = [_wrapped(f"  {name:<8}", getattr(workload, name)) for name in _TEXTS]
    shared = parameters_of(TrainingConfig) if _is_training(workload) else []
    own = [parameter for parameter in parameters_of(workload.config) if parameter not in shared]
    heading = "  parameters, beside those of all training workloads" if shared else "  parameters"
    return "\n".join([_wrapped(f"{workload.name}: ", workload.summary, indent="  "), *facts, heading, *_table(own)])


def _is_training(workload: Workload[Any]) -> bool:
    return issubclass(workload.config, TrainingConfig)


def _table(parameters: Sequence[Parameter]) -> list[str]:
    width = max(len(parameter.name) for parameter in parameters)
    return [_wrapped(f"    --{parameter.name:<{width}}  ", _explain(parameter)) for parameter in parameters]


def _explain(parameter: Parameter) -> str:
    notes = [] if parameter.default is None else [f"default {parameter.default}"]
    if parameter.choices:
        notes.insert(0, "|".join(parameter.choices))
    return f"{parameter.help} [{'; '.join(notes)}]" if notes else parameter.help


def _wrapped(label: str, text: str, indent: str | None = None) -> str:
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=label,
        subsequent_indent=" " * len(label) if indent is None else indent,
        break_on_hyphens=False,
    )
