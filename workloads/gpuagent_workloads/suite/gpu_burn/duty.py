"""When to work and when to rest, so that a GPU does a given share of the work that it can do."""

import time
from collections.abc import Callable

# Work and rest alternate this fast: well below the sixth of a second over which the driver averages utilisation.
PERIOD_SECONDS = 0.05


def products_per_period(share: float, product_seconds: float) -> int:
    """Return how many matrix products make up `share` of a period, at least one.

    Args:
        share: from 0 to 1.
        product_seconds: what one takes on the idle GPU.
    """
    return max(1, round(share * PERIOD_SECONDS / product_seconds))


def period_seconds(share: float, products: int, product_seconds: float) -> float:
    """Return the period in which so many products make up `share`: `PERIOD_SECONDS`, but for the rounding."""
    return products * product_seconds / share


def alternate(
    work: Callable[[], None],
    period: float,
    is_enough: Callable[[], bool],
    now_seconds: Callable[[], float] = time.perf_counter,
    rest: Callable[[float], None] = time.sleep,
) -> None:
    """Work once a period, and rest for what is left of it, until `is_enough()`.

    When the work takes longer than a period, as it does on a GPU that is shared, the next begins at once; what was
    missed is not made up for.
    """
    ends_seconds = now_seconds()
    while not is_enough():
        ends_seconds = max(ends_seconds, now_seconds()) + period
        work()
        left_seconds = ends_seconds - now_seconds()
        if left_seconds > 0:
            rest(left_seconds)
