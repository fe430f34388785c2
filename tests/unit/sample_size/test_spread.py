"""How far repeats scatter."""

from math import exp, log
from statistics import stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from gpuagent_collector.sample_size.spread import chi_squared_quantile, pooled_spread

values = st.floats(1e-3, 1e3)


@given(st.lists(values, min_size=2, max_size=9, unique=True))
def test_of_one_cell_it_is_the_standard_deviation_of_the_logarithms(cell: list[float]) -> None:
    spread = pooled_spread([cell])
    assert spread is not None
    assert spread.seen == pytest.approx(stdev(map(log, cell)))


def test_levels_of_cells_and_single_runs_do_not_count() -> None:
    scattered = [exp(0.02), exp(-0.02)]
    spread = pooled_spread([scattered, [1000 * value for value in scattered], [7.0], []])
    assert spread is not None
    assert spread.seen == pytest.approx(0.02 * 2**0.5)
    assert spread.freedom == 2
    assert pooled_spread([[1.0], [2.0]]) is None


@given(st.lists(values, min_size=4, max_size=9), st.sampled_from([1e-6, 1e6]))
def test_units_do_not_matter(cell: list[float], factor: float) -> None:
    plain, scaled = pooled_spread([cell]), pooled_spread([[factor * value for value in cell]])
    assert plain is not None
    assert scaled is not None
    assert scaled.cautious == pytest.approx(plain.cautious, abs=1e-6)


@pytest.mark.parametrize("freedom", [4, 5, 8, 12, 40, 500])
def test_the_quantile_of_chi_squared_is_scipys(freedom: int) -> None:
    assert chi_squared_quantile(0.2, freedom) == pytest.approx(float(chi2.ppf(0.2, freedom)), rel=0.01)


def test_the_cautious_spread_is_the_upper_end_of_its_interval() -> None:
    cell = [exp(deviation) for deviation in (-0.03, -0.01, 0.0, 0.01, 0.03)]
    spread = pooled_spread([cell])
    assert spread is not None
    assert spread.cautious == pytest.approx(spread.seen * (4 / float(chi2.ppf(0.2, 4))) ** 0.5, rel=0.01)
