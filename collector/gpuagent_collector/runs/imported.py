"""Imported runs beside those of gpuagent: which of these they are compared with."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuagent_collector.runs.data import Run

# Parameters of which null, on either side, stands for what the server has: it agrees with any value.
_OPEN = frozenset({"model"})


def join_imported(runs: Sequence[Run]) -> list[Run]:
    """Return the runs, the imported ones with the parameters of the agent's runs that they agree with.

    A file says less than a run of gpuagent: not the seed, or how long it warmed up. An imported run joins the runs of
    its workload with which it agrees in everything that it states, if these agree with one another. Otherwise it keeps
    its own parameters. The agent's runs never change.
    """
    own: dict[str, dict[str, Mapping[str, Any]]] = {}
    for run in runs:
        if run.imported is None:
            own.setdefault(run.workload, {}).setdefault(run.parameters, json.loads(run.parameters))
    return [run if run.imported is None else _join(run, own.get(run.workload, {})) for run in runs]


def _join(run: Run, candidates: Mapping[str, Mapping[str, Any]]) -> Run:
    stated = json.loads(run.parameters)
    agreeing = [text for text, parameters in candidates.items() if _agree(stated, parameters)]
    return replace(run, parameters=agreeing[0]) if len(agreeing) == 1 else run


def _agree(stated: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
    return all(
        parameters.get(name) == value or (name in _OPEN and None in (value, parameters.get(name)))
        for name, value in stated.items()
    )
