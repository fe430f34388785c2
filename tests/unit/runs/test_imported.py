"""Lengths of imported runs: measured means may differ a little, stated ones may not."""

import json

import pytest

from gpuagent_collector.runs.data import Run
from gpuagent_collector.runs.find import join_imported
from tests.support.bare_runs import bare_run


@pytest.mark.parametrize(
    ("one", "other", "are_alike"),
    [
        ("1000", "1000", True),
        ("1000", "1024", False),
        ("≈1000", "1024", True),
        ("≈1000.5", "≈1024", True),
        ("≈1000", "≈1100", False),
        ("≈1000", "normal:1000:10", False),
        ("≈1000", None, False),
    ],
)
def test_only_measured_lengths_are_alike_within_five_percent(one: str, other: str | None, are_alike: bool) -> None:
    imported = [_run("a", one, "vllm"), _run("b", other, "vllm")]
    assert (len({run.parameters for run in join_imported(imported)}) == 1) is are_alike
    own = _run("own", other, None)
    (joined, _) = join_imported([imported[0], own])
    assert (joined.parameters == own.parameters) is are_alike


def _run(run_id: str, length: str | None, imported: str | None) -> Run:
    return bare_run(run_id, workload="serve-load", imported=imported, parameters=json.dumps({"input": length}))
