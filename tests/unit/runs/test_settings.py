"""The settings of runs, of which agents report some as texts."""

from dataclasses import fields
from typing import Any

import pytest

from gpuagent_collector.runs.cells import Cell
from gpuagent_collector.runs.data import Facts, Run
from gpuagent_collector.runs.settings import settings_of


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ("cpus=8 memory=2G cpus=4@60s", (8.0, 2 * 2**30)),
        ("cpus=8 unlimited memory", (8.0, None)),
        ("cpus=all memory=8", (None, None)),
    ],
)
def test_limits_in_another_form_are_unknown(limits: str, expected: tuple[float | None, int | None]) -> None:
    absent: dict[str, Any] = {field.name: None for field in fields(Run)}
    run = Run(**{**absent, "run_id": "run-1", "workload": "mnist", "parameters": "{}", "limits": limits})
    nothing: dict[str, Any] = {field.name: {} for field in fields(Facts)}
    facts = Facts(**nothing)
    settings = settings_of(Cell(side="a", runs=(run,), others={}), facts)
    assert (settings.cpus, settings.memory_bytes) == expected
