"""Like runs agree in every facet that is not left out."""

from dataclasses import replace
from typing import Any

import pytest

from gpuagent_collector.runs.like import group_like, like_key
from tests.support.bare_runs import bare_run

COMMAND = ("train.py", "--lr", "0.1", "--data", "/home/ada/data")
RUN = bare_run("one", platform="x", workload="train.py", environment="docker", image="torch:1", command=COMMAND)


@pytest.mark.parametrize(
    ("facet", "value"),
    [
        ("workload", "other.py"),
        ("parameters", '{"batch-size": 8}'),
        ("command", ("train.py", "--lr", "0.2", "--data", "/home/ada/data")),
        ("platform", "y"),
        ("environment", "bare"),
        ("image", "torch:2"),
        ("interference", "cpu-burn"),
        ("limits", "cpus=2"),
        ("device", "T4"),
        ("node_count", 2),
    ],
)
def test_runs_that_differ_in_a_facet_are_alike_only_without_it(facet: str, value: Any) -> None:
    changed: dict[str, Any] = {facet: value}
    other = replace(RUN, **changed)
    assert like_key(other) != like_key(RUN)
    left_out = "identity" if facet == "command" else facet
    assert like_key(other, left_out) == like_key(RUN, left_out)


def test_repeats_at_other_places_are_alike_and_keep_their_order() -> None:
    moved = replace(RUN, run_id="two", nodes="birch", repeat=2, command=(*RUN.command[:-1], "/data"))
    different = replace(RUN, run_id="three", image="torch:2")
    assert [[run.run_id for run in runs] for runs in group_like([moved, different, RUN]).values()] == [
        ["two", "one"],
        ["three"],
    ]
