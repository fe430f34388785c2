"""Imported runs beside those of gpuagent: which of these they are compared with."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuagent_collector.choices import MEASURED_MARK
from gpuagent_collector.runs.data import Run

# Lengths of prompts and answers; measured means differ a little between repeats of one setting.
_LENGTHS = ("input", "output")
_ALIKE_LENGTHS = 0.05

# Parameters of which null, on either side, stands for what the server has: it agrees with any value.
_OPEN = frozenset({"model"})


def join_imported(runs: Sequence[Run]) -> list[Run]:
    """Return the runs, the imported ones with the parameters of the agent's runs that they agree with.

    A file says less than a run of gpuagent: not the seed, or how long it warmed up. An imported run joins the runs of
    its workload with which it agrees in everything that it states, if these agree with one another. Otherwise it keeps
    its own parameters, with the lengths of the first imported run whose measured means are within 5 %. The agent's runs
    never change.
    """
    own: dict[str, dict[str, Mapping[str, Any]]] = {}
    for run in runs:
        if run.imported is None:
            own.setdefault(run.workload, {}).setdefault(run.parameters, json.loads(run.parameters))
    first = _first_alike([run for run in runs if run.imported is not None])
    return [run if run.imported is None else _join(first[run.run_id], own.get(run.workload, {})) for run in runs]


def _first_alike(runs: Sequence[Run]) -> dict[str, Run]:
    """Return the runs by their ids, with the parameters of the first one that has the same but for slight lengths."""
    firsts: dict[tuple[str, str], list[tuple[Run, list[Any]]]] = {}
    found = {}
    for run in sorted(runs, key=lambda each: each.run_id):
        stated = json.loads(run.parameters)
        lengths = [stated.pop(name, None) for name in _LENGTHS]
        known = firsts.setdefault((run.workload, json.dumps(stated, sort_keys=True)), [])
        near = [first for first, others in known if all(map(_is_near, lengths, others))]
        if not near:
            known.append((run, lengths))
        found[run.run_id] = replace(run, parameters=near[0].parameters) if near else run
    return found


def _is_near(one: Any, other: Any) -> bool:
    """Return whether two lengths are equal, or differ by little where one is a measured mean."""
    texts = [str(one), str(other)]
    if one == other or not any(text.startswith(MEASURED_MARK) for text in texts):
        return bool(one == other)
    try:
        less, more = sorted(float(text.removeprefix(MEASURED_MARK)) for text in texts)
    except ValueError:
        return False
    return more - less <= _ALIKE_LENGTHS * more


def _join(run: Run, candidates: Mapping[str, Mapping[str, Any]]) -> Run:
    stated = json.loads(run.parameters)
    agreeing = [text for text, parameters in candidates.items() if _agree(stated, parameters)]
    return replace(run, parameters=agreeing[0]) if len(agreeing) == 1 else run


def _agree(stated: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
    return all(
        parameters.get(name) == value
        or (name in _OPEN and None in (value, parameters.get(name)))
        or (name in _LENGTHS and _is_near(parameters.get(name), value))
        for name, value in stated.items()
    )
