"""The effects of a sweep's options: alone, over all values of the others, or depending on one of them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import prod

import numpy as np

from gpuagent_collector.compare.figures import Figures, Test, compute_figures
from gpuagent_collector.runs.arguments import differing_arguments, find_argument
from gpuagent_collector.runs.cells import Layout, choose_sides, lay_out
from gpuagent_collector.runs.columns import Floats
from gpuagent_collector.runs.data import Facts, Run
from gpuagent_collector.runs.facets import Facet, can_name, find_facet

# Options with their tests.
Options = tuple[tuple[Facet, tuple[Test, ...]], ...]

# Fewer runs of a command are apart from others by chance too often.
_LEAST_RUNS = 3
# The ratios of an option, at two values of another one, differ by more than this share.
_APART = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependence:
    """An option whose effect depends on another one, so that its effect over all values of that is true of none.

    Attributes:
        side, baseline: two values of `option`.
        ratios: the median ratio of single runs with `side` to those with `baseline`, by the value of `other`.
    """

    option: Facet
    other: Facet
    side: str
    baseline: str
    ratios: Mapping[str, float]


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


def _find_dependences(
    options: Options, names: Sequence[str], known: Mapping[tuple[str, ...], Floats]
) -> Iterator[Dependence]:
    """Yield for each two options that depend on each other the effect that most clearly helps here and harms there."""
    found: dict[frozenset[str], list[Dependence]] = defaultdict(list)
    for (option, tests), (other, _) in permutations(options, 2):
        for test in tests:
            sides = test.other.side, test.baseline.side
            places = names.index(option.argument or ""), names.index(other.argument or "")
            ratios = _find_ratios(known, places, *sides)
            if not any(min(one) > (1 + _APART) * max(another) for one, another in permutations(ratios.values(), 2)):
                continue
            medians = {value: float(np.median(of_value)) for value, of_value in ratios.items()}
            dependence = Dependence(option=option, other=other, side=sides[0], baseline=sides[1], ratios=medians)
            found[frozenset((option.name, other.name))].append(dependence)
    for of_both in found.values():
        yield max(of_both, key=lambda each: min(max(each.ratios.values()), 1 / min(each.ratios.values())))


def _find_ratios(
    known: Mapping[tuple[str, ...], Floats], places: tuple[int, int], side: str, baseline: str
) -> Mapping[str, Sequence[float]]:
    """Return the ratios of all single runs of two values of an option, by the value of another one.

    `places` are those of both options in a command's values; runs are equal in all others. {}: some commands
    have too few runs, or figures that are not above 0.
    """
    option, other = places
    ratios: dict[str, list[float]] = defaultdict(list)
    for key, figures_of in known.items():
        if key[option] == side:
            against = known[(*key[:option], baseline, *key[option + 1 :])]
            if min(figures_of.size, against.size) < _LEAST_RUNS or min(*figures_of, *against) <= 0:
                return {}
            ratios[key[other]] += np.divide.outer(figures_of, against).ravel().tolist()
    return ratios
