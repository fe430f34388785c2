"""Tables of simulations, and shares with their Monte Carlo error."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]

# Logarithms of values by kind, with the spread of a run in the middle of the distribution.
NOISE: Mapping[str, Draw] = {
    "normal": lambda chance, size: chance.normal(0, 0.01, size),
    "skewed": lambda chance, size: 0.01 * (chance.gamma(1.0, 1.0, size) - 1),
    "heavy tails (t3)": lambda chance, size: 0.01 * chance.standard_t(3, size) / sqrt(3),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of a simulation; columns after the first are numbers."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return the table, with the largest error of a column's shares in its header."""
        columns = []
        for name, *cells in zip(self.header, *self.rows, strict=True):
            shares = [cell.partition(" ± ") for cell in cells]
            errors = [float(error) for _, _, error in shares if error]
            title = f"{name} (± {max(errors)})" if errors else name
            columns.append([title, *(value for value, _, _ in shares)])
        header, *rows = [f"| {' | '.join(line)} |" for line in zip(*columns, strict=True)]
        return "\n".join([header, f"|---{'|--:' * (len(self.header) - 1)}|", *rows])


def share(count: int, trials: int) -> str:
    """Return a share in percent with twice its standard error, by Agresti and Coull so that 0 has one: 4.9 ± 0.7."""
    middle = (count + 2) / (trials + 4)
    return f"{100 * count / trials:.1f} ± {200 * sqrt(middle * (1 - middle) / (trials + 4)):.1f}"
