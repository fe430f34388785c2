"""Quantiles of distributions that the standard library lacks."""

from statistics import NormalDist


def chi_squared_quantile(probability: float, freedom: int) -> float:
    """Return the quantile by Wilson and Hilferty (1931): for 0.2, within 1 % from 4 degrees of freedom on."""
    scale = 2 / (9 * freedom)
    return float(freedom * (1 - scale + NormalDist().inv_cdf(probability) * scale**0.5) ** 3)
