"""Runs and facts of which a test states what it needs."""

from dataclasses import fields
from typing import Any

from gpuagent_collector.runs.data import Facts, Run, load_facts


def bare_run(run_id: str = "run-1", **known: Any) -> Run:
    """Return a run of mnist of which nothing else is known."""
    absent: dict[str, Any] = dict.fromkeys(field.name for field in fields(Run))
    return Run(**{**absent, "run_id": run_id, "workload": "mnist", "parameters": "{}", "command": (), **known})


def no_facts() -> Facts:
    """Return the facts of runs about which nothing is stored."""
    return load_facts(lambda _sql, _parameters=(): [], [])
