"""The settings of runs, of which agents report some as texts."""

import pytest

from gpuagent_collector.runs.cells import Cell
from gpuagent_collector.runs.settings import settings_of
from tests.support.bare_runs import bare_run, no_facts


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ("cpus=8 memory=2G cpus=4@60s", (8.0, 2 * 2**30)),
        ("cpus=8 unlimited memory", (8.0, None)),
        ("cpus=all memory=8", (None, None)),
    ],
)
def test_limits_in_another_form_are_unknown(limits: str, expected: tuple[float | None, int | None]) -> None:
    settings = settings_of(Cell(side="a", runs=(bare_run(limits=limits),), others={}), no_facts())
    assert (settings.cpus, settings.memory_bytes) == expected
