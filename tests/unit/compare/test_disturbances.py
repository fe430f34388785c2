"""Warnings of what disturbed runs: they read no more figures than those that are loaded for them."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpuagent_collector.compare.caveats import OF_DISTURBANCES, find_disturbances
from gpuagent_collector.runs.columns import Columns, Piece
from tests.support.bare_runs import bare_run, no_facts


def test_disturbances_read_the_figures_that_are_loaded_first() -> None:
    def others() -> Iterator[Piece]:
        yield from pytest.fail("further figures are read")

    figures = [(metric, [0], [float(len(OF_DISTURBANCES) - at)]) for at, metric in enumerate(OF_DISTURBANCES)]
    facts = replace(no_facts(), metrics=Columns(["run-1"], figures, first=OF_DISTURBANCES, others=others))
    codes = [caveat.code for caveat in find_disturbances({"": [bare_run("run-1")]}, facts)]
    repairs = ["ecc_errors_uncorrected", "memory_repair_pending", "memory_repair_failed"]
    assert codes == ["foreign_load", *repairs, "throttled", "shared_gpu"]
