"""The choice of what is compared: of sides where none was named, and of one experiment among several."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from gpuagent_collector.compare.comparison import Comparison, Request, compare
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.arguments import NOT_GIVEN, Command, parse_arguments
from gpuagent_collector.runs.cells import Layout
from gpuagent_collector.runs.data import Run
from gpuagent_collector.runs.facets import JOINT, Facet, can_name, find_facet
from gpuagent_collector.runs.words import distinguishing
from gpuagent_common.errors import GpuAgentError, MisuseError

# Runs that are sides of their own without being named.
_MOST_SINGLE = 6


def say_choice(comparison: Comparison, request: Request) -> str:
    """Return the reason why a comparison is of something else than was asked for; '' where it is not."""
    if (comparison.request.by, comparison.request.experiment) == (request.by, request.experiment):
        return ""
    layout = comparison.layout
    if comparison.request.experiment != request.experiment:
        return say_experiment(comparison.experiments, [run.command for run in layout.runs])
    return f"All runs are on {layout.runs[0].platform}, so they are compared by {layout.facet.spoken}."


# Of the options that all commands of an experiment have.
_MOST_CHARACTERS = 48


def say_experiment(experiments: Sequence[tuple[str, int]], commands: Iterable[Command] = ()) -> str:
    """Return which experiment was chosen, why, and what all its commands have; --experiment takes another."""
    (chosen, most), *others = experiments
    alike = 1 + sum(number == most for _, number in others)
    total = sum(number for _, number in experiments)
    part = f" ({most:,} of {total:,})" if total > most else ""
    which = f"with the most runs{part}" if alike == 1 else f"the newest of {alike} with {most} runs each"
    given = [parse_arguments(command) for command in dict.fromkeys(commands)]
    shared = []
    for name, value in given[0].items() if given else ():
        if name.startswith("-") and all(each.get(name) == value for each in given):
            shared.append(f"{name} {value}".rstrip())
    words = " ".join(shared)
    also = f", all with {words}" if 0 < len(words) <= _MOST_CHARACTERS else ""
    return f"This is {chosen}, {which}{also}."


def compare_what_differs(ask: Ask, request: Request) -> Comparison:
    """Compare as requested; where nothing was requested and all is on one platform, by what differs in its runs.

    By commands or their arguments, of several experiments it is the one with the most runs.
    """
    try:
        comparison = compare(ask, request)
    except MisuseError as wrong:
        # Sides by the names that commands have in that experiment alone.
        by = "command" if request.by == "platform" else request.by
        if request.experiment or request.where or request.event or not find_facet(by).is_of_arguments:
            raise
        with suppress(GpuAgentError, MisuseError):
            every = compare(ask, replace(request, by=by, values=(), baseline=None))
            return _compare_first(ask, replace(request, by=by), rank_experiments(every.layout))
        raise wrong from None
    if "run" in comparison.layout.facet.names and not request.values and len(comparison.layout.sides) > _MOST_SINGLE:
        raise MisuseError(
            f"{len(comparison.layout.sides)} single runs are too many sides; name two: "
            "`collector compare --by run A B`; `collector runs` lists them"
        )
    is_free = not (request.values or request.baseline or request.where or request.experiment)
    facet = find_sweep(comparison.layout) if request.is_usual else None
    experiments: Sequence[tuple[str, int]] = ()
    if request.is_usual and is_free and not facet:
        # Runs beside a sweep, such as searches of the same server, differ in more than it does.
        experiments = _by_size(comparison.layout)
        facet = find_sweep(comparison.layout, experiments[0][0]) if experiments else None
        experiments = experiments if facet else ()
    elif is_free and (facet == "command" or comparison.layout.facet.is_of_arguments):
        experiments = rank_experiments(comparison.layout)
    if not facet and not experiments:
        return comparison
    chosen = {name for name, _ in experiments}
    others = [each for each in _by_size(comparison.layout) if chosen and each[0] not in chosen]
    return _compare_first(ask, replace(request, by=facet or request.by), [*experiments, *others])


def _compare_first(ask: Ask, request: Request, experiments: Sequence[tuple[str, int]]) -> Comparison:
    """Compare the first of the experiments, where there are some, and name the others."""
    if not experiments:
        return compare(ask, request)
    return replace(compare(ask, replace(request, experiment=experiments[0][0])), experiments=experiments)


# Of one comparison; what differs in more is no sweep.
_MOST_PARAMETERS = 2


# The conditions that somebody sets, and does not find on a node.
_SWEPT = {"environment", "interference", "limits"}


def find_sweep(layout: Layout, experiment: str | None = None) -> str | None:
    """Return the facet by which runs of one side differ: commands, parameters, conditions; None: they are no sweep.

    Args:
        layout: all runs of one workload on one side, or else they are no sweep.
        experiment: look at its runs alone; None: at all.
    """
    workload = layout.blocks[0].workload
    if len(layout.sides) > 1 or any(block.workload != workload for block in layout.blocks):
        return None
    blocks = []
    commands_of = []
    for block in layout.blocks:
        runs = block.runs
        commands = {run.command for run in runs if experiment in (None, run.experiment)}
        if commands:
            blocks.append(block)
            commands_of.append(commands)
    first = blocks[0]
    if len(commands_of[0]) > 1:
        return "command"
    names = dict.fromkeys(name for block in blocks for name in distinguishing(block.parameters, [first.parameters]))
    held = dict.fromkeys(name for block in blocks for name in distinguishing(block.held, [first.held]))
    if not names and 0 < len(held) <= _MOST_PARAMETERS and _SWEPT.issuperset(held):
        return ",".join(held)
    is_sweep = 0 < len(names) <= _MOST_PARAMETERS and all(block.held == first.held for block in blocks)
    return ",".join(f"parameter:{name}" for name in names if can_name(name)) or None if is_sweep else None


def _has_all_arguments(sides: Iterable[Command | str | None]) -> bool:
    """Return whether each of the arguments of which sides are values is given on some side."""
    given = [str(side).split(JOINT) for side in sides if side is not None]
    return all(set(of_one) != {NOT_GIVEN} for of_one in zip(*given, strict=False))


def _find_place(run: Run, facet: Facet) -> tuple[str, ...]:
    """Return a run's values of those of several facets that are not of commands."""
    values = (run.side or "").split(JOINT)
    if len(values) != len(facet.parts):
        return ()
    return tuple(value for part, value in zip(facet.parts, values, strict=True) if part.argument is None)


def rank_experiments(layout: Layout) -> Sequence[tuple[str, int]]:
    """Return the experiments with a sweep and their numbers of runs, as they are preferred.

    Empty: all are of one, or none has all the platforms, or values of other facets, that are compared.
    """
    is_of_arguments = any(part.argument for part in layout.facet.parts)
    swept: dict[str | None, set[Command | str | None]] = defaultdict(set)
    places: dict[str | None, set[tuple[str, ...]]] = defaultdict(set)
    for run in layout.runs:
        swept[run.experiment].add(run.side if is_of_arguments else run.command)
        places[run.experiment].add(_find_place(run, layout.facet))
    if len(swept) == 1:
        return ()
    every_place = set().union(*places.values())
    # An experiment that lacks one of several arguments says nothing of it.
    return [
        (name, number)
        for name, number in _by_size(layout)
        if len(swept[name]) > 1
        and places[name] == every_place
        and (not is_of_arguments or _has_all_arguments(swept[name]))
    ]


def _by_size(layout: Layout) -> Sequence[tuple[str, int]]:
    """Return the experiments and their numbers of runs, the largest first, and the newest of equally large ones."""
    begins: dict[str, list[datetime]] = defaultdict(list)
    for run in layout.runs:
        if run.experiment is not None:
            begins[run.experiment].append(run.started_at or datetime.min)  # noqa: DTZ901 - as the store's
    ordered = sorted(begins.items(), key=lambda each: (len(each[1]), max(each[1])), reverse=True)
    return [(name, len(of_one)) for name, of_one in ordered]
