"""Roofs and what lies below them, computed by hand."""

import pytest

from gpuagent_collector.answers.roofline_points import Roofs, datasheet_roofs, exceeds, measured_roofs
from tests.integration.roofline.made_up import CEILINGS, DATASHEET

ROOFS = Roofs(flops_per_second={"fp32": 10e12, "tf32": 100e12}, bytes_per_second=1e12)


def test_measured_roofs_are_the_best_product_of_each_arithmetic_and_the_better_bandwidth() -> None:
    assert measured_roofs(CEILINGS) == ROOFS


def test_datasheet_roofs_are_gathered_from_what_runs_stored() -> None:
    narrow = {"datasheet_bf16_flops_per_second": 400e12, "datasheet_fp8_flops_per_second": 800e12}
    roofs = datasheet_roofs([{}, DATASHEET, narrow])
    assert roofs.flops_per_second == {"fp32": 20e12, "tf32": 200e12, "bf16": 400e12, "fp8": 800e12}
    assert roofs.bytes_per_second == 2e12


def test_nothing_that_is_known_makes_roofs_without_peaks() -> None:
    assert measured_roofs({}) == datasheet_roofs([]) == Roofs(flops_per_second={}, bytes_per_second=None)


def test_a_mix_takes_its_arithmetics_one_after_the_other() -> None:
    # 90 TFLOP at 100 TFLOP/s and 10 at 10 take 0.9 s and 1 s.
    assert ROOFS.peak({"tf32": 90e12, "fp32": 10e12}) == pytest.approx(100e12 / 1.9)


@pytest.mark.parametrize("mix", [{}, {"bf16": 1.0}, {"bf16": 1.0, "fp32": 1.0}])
def test_a_mix_with_an_unknown_peak_has_none(mix: dict[str, float]) -> None:
    assert ROOFS.peak(mix) is ROOFS.at(mix, 1.0) is ROOFS.ridge(mix) is None


@pytest.mark.parametrize(("intensity", "roof"), [(1.0, 1e12), (10.0, 10e12), (1000.0, 10e12)])
def test_memory_bounds_left_of_the_ridge_and_arithmetic_right_of_it(intensity: float, roof: float) -> None:
    assert ROOFS.ridge({"fp32": 1.0}) == 10
    assert ROOFS.at({"fp32": 1.0}, intensity) == roof


@pytest.mark.parametrize(
    ("mix", "is_above"),
    [
        ({"fp32": 9e12, "tf32": 99e12}, False),  # together more than either peak: the two may overlap
        ({"fp32": 11e12, "tf32": 1e12}, True),
        ({"bf16": 1e20}, False),
    ],
)
def test_only_an_arithmetic_that_alone_is_above_its_peak_cannot_be(mix: dict[str, float], is_above: bool) -> None:
    assert exceeds(mix, 1.0, ROOFS) is is_above
