"""The effects of a sweep's options: alone, over all values of the others, or depending on one of them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import comb, prod

import numpy as np

from gpuagent_collector.compare.figures import Figures, Test, compute_figures
from gpuagent_collector.runs.arguments import differing_arguments, find_argument
from gpuagent_collector.runs.cells import Layout, choose_sides, lay_out
from gpuagent_collector.runs.columns import Floats
from gpuagent_collector.runs.data import Facts, Run
from gpuagent_collector.runs.facets import Facet, can_name, find_facet
from gpuagent_collector.statistics.shift import estimate_shift

# Options with their tests.
Options = tuple[tuple[Facet, tuple[Test, ...]], ...]

# Fewer runs of a command are apart from others by chance too often.
_LEAST_RUNS = 3
# A smaller share between the effects of an option beside two values of another one leaves its effect over all true.
_APART = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependence:
    """An option whose effect depends on another one, so that its effect over all values of that is true of none.

    Attributes:
        side, baseline: two values of `option`.
        ratios: the median ratio of runs with `side` to those with `baseline`, by the value of `other`.
        undecided: the values of `other` beside which neither value of `option` is shown to be higher.
    """

    option: Facet
    other: Facet
    side: str
    baseline: str
    ratios: Mapping[str, float]
    undecided: frozenset[str]


def find_options(layout: Layout, facts: Facts, figures: Figures) -> tuple[Options, tuple[Dependence, ...]]:
    """Return the tests of each option alone, of those that depend on no other one, and what depends on what.

    Nothing where not every combination of their values has the metric.
    """
    values = _find_values(layout)
    cells: dict[tuple[str, ...], list[Run]] = defaultdict(list)
    for run in layout.blocks[0].runs if values else ():
        cells[tuple(find_argument(run.command, name) for name in values)].append(run)
    known = {key: facts.array(runs, figures.primary.name) for key, runs in cells.items()}
    sizes = {figures_of.size for figures_of in known.values()}
    if not known or 0 in sizes:
        return (), ()
    options = tuple(_test_options(layout, facts, figures, [*values]))
    dependences = tuple(_find_dependences(options, [*values], known))
    depending = {facet.name for each in dependences for facet in (each.option, each.other)}
    # Where runs are not in pairs, an option would get the effect of those beside which it ran more often.
    alone = (each for each in options if len(sizes) == 1 or all(test.pairs is not None for test in each[1]))
    return tuple(each for each in alone if each[0].name not in depending), dependences


def _find_values(layout: Layout) -> Mapping[str, set[str]]:
    """Return the values of each option in which commands differ; {}: they are no sweep, or not all combinations."""
    commands = {run.command for run in layout.blocks[0].runs}
    if len(layout.blocks) > 1 or not all(part.argument is not None for part in layout.facet.parts):
        return {}
    names = [name for name, _ in differing_arguments([list(commands)])]
    values = {name: {find_argument(command, name) for command in commands} for name in names}
    # Commands that only write an option in another way are one.
    combinations = {tuple(find_argument(command, name) for name in names) for command in commands}
    is_whole = len(values) > 1 and prod(map(len, values.values())) == len(combinations)
    return values if is_whole and all(map(can_name, values)) else {}


def _test_options(
    layout: Layout, facts: Facts, figures: Figures, names: Sequence[str]
) -> Iterator[tuple[Facet, tuple[Test, ...]]]:
    every = layout.blocks[0].runs
    for name in names:
        facet = find_facet(f"argument:{name}")
        runs = [replace(run, side=find_argument(run.command, name)) for run in every]
        of_option = lay_out(runs, facet, choose_sides(runs, facet, (), None), chosen_by_name=False)
        # All options together are wrong at most as often as one test.
        alpha = 0.05 / len(names)
        found = compute_figures(
            of_option, facts, metric=figures.primary.name, delta=figures.delta, alpha=alpha, unpaired=figures.unpaired
        )
        yield facet, found.tests


@dataclass(frozen=True, slots=True)
class _Ratios:
    """Ratios of runs with two values of an option beside one value of another: of each round, and of any two runs."""

    pairs: list[float]
    every: list[float]

    def are_above(self, others: "_Ratios", alpha: float) -> bool:
        """Return whether they are above others by more than chance and a share that matters."""
        if min(self.every) > (1 + _APART) * max(others.every):  # as no test of a few runs could show
            return True
        shift = estimate_shift(others.pairs, self.pairs, alpha=alpha)
        return shift.is_shown and shift.estimate > 1 + _APART

    def are_one_way(self) -> bool:
        """Return whether they show which of the two values is higher."""
        is_apart = min(self.every) > 1 or max(self.every) < 1
        return is_apart or estimate_shift([1.0] * len(self.pairs), self.pairs, matched=True).is_shown


def _find_dependences(
    options: Options, names: Sequence[str], known: Mapping[tuple[str, ...], Floats]
) -> Iterator[Dependence]:
    """Yield for each two options that depend on each other the effect that most clearly helps here and harms there."""
    contrasts: list[tuple[Facet, Facet, Test, dict[str, _Ratios]]] = []
    for (option, tests), (other, _) in permutations(options, 2):
        places = names.index(option.argument or ""), names.index(other.argument or "")
        for test in tests:
            contrasts.append((option, other, test, _find_ratios(known, places, test.other.side, test.baseline.side)))
    # Each is there twice, once from either option.
    alpha = 2 * 0.05 / max(1, sum(comb(len(ratios), 2) for *_, ratios in contrasts))
    found: dict[frozenset[str], list[Dependence]] = defaultdict(list)
    for option, other, test, ratios in contrasts:
        if any(one.are_above(another, alpha) for one, another in permutations(ratios.values(), 2)):
            dependence = Dependence(
                option=option,
                other=other,
                side=test.other.side,
                baseline=test.baseline.side,
                ratios={value: float(np.median(of_value.pairs)) for value, of_value in ratios.items()},
                undecided=frozenset(value for value, of_value in ratios.items() if not of_value.are_one_way()),
            )
            found[frozenset((option.name, other.name))].append(dependence)
    for of_both in found.values():
        yield max(of_both, key=lambda each: min(max(each.ratios.values()), 1 / min(each.ratios.values())))


def _find_ratios(
    known: Mapping[tuple[str, ...], Floats], places: tuple[int, int], side: str, baseline: str
) -> dict[str, _Ratios]:
    """Return the ratios of runs with two values of an option, by the value of another one.

    `places` are those of both options in a command's values; runs are equal in all others. {}: some commands
    have too few runs, or figures that are not above 0.
    """
    option, other = places
    ratios: dict[str, _Ratios] = {}
    for key, figures_of in known.items():
        if key[option] == side:
            against = known[(*key[:option], baseline, *key[option + 1 :])]
            least = min(figures_of.size, against.size)
            if least < _LEAST_RUNS or min(*figures_of, *against) <= 0:
                return {}
            of_value = ratios.setdefault(key[other], _Ratios([], []))
            of_value.pairs.extend((figures_of[:least] / against[:least]).tolist())
            of_value.every.extend(np.divide.outer(figures_of, against).ravel().tolist())
    return ratios
