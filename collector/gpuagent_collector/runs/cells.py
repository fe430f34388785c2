"""Groups of runs that are compared like with like, and the runs that fit in none."""

import json
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from operator import attrgetter
from typing import Any

from gpuagent_collector.errors import NothingToCompareError
from gpuagent_collector.present.answer import Caveat
from gpuagent_collector.runs.arguments import (
    GIVEN,
    NOT_GIVEN,
    Command,
    Identity,
    differing_arguments,
    find_argument,
    identify_command,
    in_order,
    parse_arguments,
    without_arguments,
    write_argument,
)
from gpuagent_collector.runs.data import Run
from gpuagent_collector.runs.facets import CONDITIONS, FACETS, JOINT, Facet, can_name
from gpuagent_collector.runs.words import distinguishing, reasons, statuses, telling
from gpuagent_common.errors import MisuseError
from gpuagent_common.looks import read_rule

# The statuses of a run that has not ended.
UNFINISHED = ("queued", "running")

# The status of a run that the user stopped: no failure.
CANCELLED = "cancelled"


def ended_in_queue(run: Run) -> bool:
    """Return whether a run was cancelled before it started, so that there is no output."""
    return run.status == CANCELLED and run.started_at is None


# More names are not listed in a message.
_MOST_NAMES = 6

# Experiment, nodes, repeat, and what else tells runs apart.
Place = tuple[str | None, str | None, int | None, object]

# Replaces the status of a run that an operator keeps out of comparisons.
EXCLUDED = "excluded"


def cancelled_caveat(counts: str, experiment: str | None = None) -> Caveat:
    """Return the warning that cancelled runs, of an experiment or of all, are left out; `counts` are their numbers."""
    return Caveat(
        code="cancelled",
        text=f"cancelled runs are left out: {counts}",
        remedy=f"they count neither as runs nor as failures; {reasons([CANCELLED], experiment)} lists them",
    )


@dataclass(frozen=True, kw_only=True)  # without slots, for the cached properties
class Cell:
    """The runs of one side of a block.

    Attributes:
        runs: those that succeeded; only these are compared.
        others: number of the other runs, by status.
        compared: names of the arguments that are compared.
    """

    side: str
    runs: tuple[Run, ...]
    others: Mapping[str, int]
    compared: frozenset[str] = frozenset()

    @property
    def has_failed(self) -> bool:
        """Return whether no run succeeded, and one ended otherwise than by its user."""
        return not self.runs and any(status not in (*UNFINISHED, CANCELLED, EXCLUDED) for status in self.others)

    @cached_property
    def by_repeat(self) -> Mapping[Place, Run]:
        """The runs by repeat; empty where a run belongs to none, or two to one."""
        return self._index(lambda _run: None)

    @cached_property
    def by_command(self) -> Mapping[Place, Run]:
        """The runs by repeat and the rest of the command; empty where a run belongs to none, or two to one."""
        # Thousands of runs have few commands.
        commands = {run.command for run in self.runs}
        rest = {command: without_arguments(identify_command(command), self.compared) for command in commands}
        return self._index(lambda run: rest[run.command])

    def _index(self, identify: Callable[[Run], object]) -> Mapping[Place, Run]:
        runs = {(run.experiment, run.nodes, run.repeat, identify(run)): run for run in self.runs}
        complete = all(None not in place[:-1] for place in runs) and len(runs) == len(self.runs)
        return runs if complete else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Cells that differ only in the facet that is compared.

    Attributes:
        workload, parameters: of all its runs.
        held: the other facets in which all runs of the block agree, where that had to be chosen.
        row: the value of the rows' facet in a table; '' where there is none.
        named: the names of settings that are always said, because runs with others are left out.
        cells: in the order of the sides; at least two have runs, or one where nothing is compared.
    """

    workload: str
    parameters: Mapping[str, Any]
    held: Mapping[str, str | None]
    cells: tuple[Cell, ...]
    row: str = ""
    named: tuple[str, ...] = ()

    @property
    def runs(self) -> list[Run]:
        """The runs of all cells."""
        return [run for cell in self.cells for run in cell.runs]

    @property
    def baseline(self) -> str:
        """The side that the others are compared with: the first that has runs here."""
        return next(cell.side for cell in self.cells if cell.runs)

    def cell(self, side: str) -> Cell:
        """Return the cell of a side that has one."""
        return next(cell for cell in self.cells if cell.side == side)

    @property
    def settings(self) -> dict[str, Any]:
        """Everything in which its runs agree, by name, except the workload."""
        given = {name: value for name, value in self.parameters.items() if value is not None}
        return {**given, **{name: value or "none" for name, value in self.held.items()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Runs without a counterpart, and what ran; `is_unlike`: with one, whose steps are other work."""

    side: str
    runs: int
    what: str
    is_unlike: bool = False


@dataclass(frozen=True, kw_only=True)  # without slots, for the cached property
class Layout:
    """All blocks of a comparison, the largest first, and the runs that fit in none.

    Attributes:
        sides: those that have runs in some block, the baseline first; one side is described and not compared.
        is_described: whether several are described too.
    """

    facet: Facet
    sides: tuple[str, ...]
    blocks: tuple[Block, ...]
    left_out: tuple[LeftOut, ...]
    is_described: bool = False

    @property
    def is_compared(self) -> bool:
        """Return whether its sides are tested against one another."""
        return len(self.sides) > 1 and not self.facet.describes and not self.is_described

    @property
    def runs(self) -> list[Run]:
        """The runs that are compared or described, block by block."""
        return [run for block in self.blocks for run in block.runs]

    @property
    def run_ids(self) -> list[str]:
        """The runs that are compared or described."""
        return [run.run_id for side in self.sides for run in self.runs_of(side)]

    @property
    def looks(self) -> int:
        """The number of looks after which an experiment of these runs could stop; 1: it could not stop early."""
        rules = {run.until for run in self.runs if run.until}
        return max((1, *(len(read_rule(rule)[1]) for rule in rules)))

    @cached_property
    def options(self) -> tuple[str, Mapping[str, str]]:
        """Several options, and each side's values of them; '' and nothing where the sides differ in something else."""
        if self.facet.joined:
            if not any(part.option for part in self.facet.joined):
                return "", {}
            named = JOINT.join(part.option or part.spoken for part in self.facet.joined)
            return named, {side: side for side in self.sides}
        return _name_by_values({side: self.runs_of(side) for side in self.sides}, self.facet)

    def runs_of(self, side: str) -> tuple[Run, ...]:
        """Return the succeeded runs of a side over all blocks."""
        return self._by_side.get(side, ())

    @cached_property
    def _by_side(self) -> Mapping[str, tuple[Run, ...]]:
        found: dict[str, tuple[Run, ...]] = {}
        for cell in (cell for block in self.blocks for cell in block.cells):
            # The same tuple where there is one cell: the rows of its runs are known then.
            found[cell.side] = found[cell.side] + cell.runs if cell.side in found else cell.runs
        return found


def match_runs(*cells: Cell) -> list[tuple[Run, ...]]:
    """Return the runs of the cells that were made together, one of each cell; empty: they were not.

    An experiment makes every cell once in each repeat, so that two such runs on one node are a pair. Where a side ran
    several commands, a pair is of one, but for the arguments that are compared; commands that a side lacks have none.
    Where each ran one of its own, two runs of a repeat are a pair. The design decides that, and not the values. Other
    runs are independent.
    """
    first, *others = (cell.by_command for cell in cells)
    if len({frozenset(place[-1] for place in index) for index in (first, *others)}) > 1:
        by_repeat = [cell.by_repeat for cell in cells]
        if all(by_repeat):
            first, *others = by_repeat
    places = list(first)
    for other in others:
        places = [place for place in places if place in other]
    return list(zip(*([index[place] for place in places] for index in (first, *others)), strict=True))


def choose_sides(runs: Sequence[Run], facet: Facet, asked: Sequence[str], baseline: str | None) -> tuple[str, ...]:
    """Return the values of the facet that are compared, the baseline first; the only one where there is only one.

    A combination of several facets' values may be named with commas: `satori,docker`.

    Raises:
        MisuseError: a value is unknown.
        NothingToCompareError: there is no value, or no command has the argument.
    """
    _check_arguments(runs, facet)
    present = sorted({run.side for run in runs if run.side is not None}, key=in_order)
    # A side's own name goes before another one's with commas, or in other letters: True is true.
    spelled = {side.replace(JOINT, ","): side for side in present} | {side: side for side in present}
    folded = {side.casefold(): side for side in present}
    spelled = {value: folded.get(value.casefold(), value) for value in (*asked, baseline or "")} | spelled
    if any(value and spelled[value] not in present for value in (*asked, baseline)):
        # Tables name the sides of a sweep by their values.
        runs_of = {side: [run for run in runs if run.side == side] for side in present}
        for side, values in _name_by_values(runs_of, facet)[1].items():
            spelled |= {values: side, values.replace(JOINT, ","): side}
    asked, baseline = [spelled.get(value, value) for value in asked], baseline and spelled.get(baseline, baseline)
    for value in (*asked, *([baseline] if baseline else [])):
        if value not in present:
            raise MisuseError(f"no run has the {facet.spoken} {value}; {_what_is_meant(value, present, runs, facet)}")
    chosen = list(dict.fromkeys(asked or present))
    if baseline and baseline not in chosen:
        chosen.append(baseline)
    if not chosen:
        raise NothingToCompareError(_why_no_side(runs, facet))
    first = baseline or chosen[0]
    if not baseline and not asked:
        # Against a few runs from another time little of the others would be shown.
        number_of = Counter(run.side for run in runs if run.side in chosen)
        often = [side for side in chosen if 2 * number_of[side] >= max(number_of.values())]
        if facet.usual in often:
            first = facet.usual
        elif facet.usual == first or any(part.argument is not None for part in facet.parts):
            first = next(side for side in often if side != facet.usual)
    return tuple(sorted(chosen, key=lambda value: value != first))


def _name_by_values(runs_of: Mapping[str, Sequence[Run]], facet: Facet) -> tuple[str, dict[str, str]]:
    """Return the options in which the commands of sides differ, and each side's values.

    '' and nothing: some side lacks a value of one, or they differ in a single option, which names its sides itself.
    """
    commands = [[run.command for run in of_side] for of_side in runs_of.values()]
    found = differing_arguments(commands) if facet.name == "command" else []
    given = all(name and len(of_side) == 1 and of_side[0] != NOT_GIVEN for name, each in found for of_side in each)
    if len(found) < 2 or not given:
        return "", {}
    named = JOINT.join(name for name, _ in found)
    return named, {side: JOINT.join(each[at][0] for _, each in found) for at, side in enumerate(runs_of)}


# The name of an option, with or without a value behind it; a negative number is none.
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")


# Facets whose values users may take for sides of another one, and where runs have them.
_OTHER_FACETS = {name: name for name in ("platform", "environment", "interference", "device")} | {"node": "nodes"}


def _what_is_meant(value: str, present: Sequence[str], runs: Sequence[Run], facet: Facet) -> str:
    """Return what a value that no run has may be instead, or the values that there are."""
    if any(run.workload == value for run in runs):
        return f"it is a workload: --workload {shlex.quote(value)}"
    for name, attribute in _OTHER_FACETS.items():
        if name not in facet.names and any(getattr(run, attribute) == value for run in runs):
            return f"but runs have the {name} {value}: --by {name}"
    option = _OPTION.match(value)
    if option and not facet.is_of_arguments:
        return f"--by argument:{option[0]} compares by an option of commands"
    if value.endswith((".yaml", ".yml")):
        return f"if it is a file of prices: --prices {shlex.quote(value)}"
    if not present:
        return f"no run has any {facet.spoken}"
    # As the shell takes them: names of commands have spaces.
    return f"there are: {_listed([shlex.quote(each) for each in present])}"


# More combine to too many sides.
_MOST_FACETS = 3


def _why_no_side(runs: Sequence[Run], facet: Facet) -> str:
    """Return that no run has a value of the facet, and what was meant, or what differs instead."""
    kind, _, name = facet.name.partition(":")
    if kind == "label":
        labels = 'collector query sql "SELECT DISTINCT labels FROM runs"'
        return f"nothing to compare: no run has the label {name}; `{labels}` lists labels"
    known = sorted({key for run in runs for key in json.loads(run.parameters)})
    close = get_close_matches(name, known, n=1)
    if kind == "parameter" and close and close[0] != name:
        return f"no run has the parameter {name}; did you mean --by parameter:{close[0]}?"
    if kind == "parameter" and any(find_argument(run.command, name) != NOT_GIVEN for run in runs if run.command):
        return f"no built-in workload has the parameter {name}; commands have it as an argument: --by argument:{name}"
    # Of one workload, as others have other ones.
    workload = runs[0].workload
    parameters = [json.loads(text) for text in {run.parameters for run in runs if run.workload == workload}]
    differing = sorted({name for one in parameters for name in distinguishing(one, parameters) if can_name(name)})
    by = ",".join(f"parameter:{name}" for name in differing[:_MOST_FACETS])
    remedy = f"--by {by} compares what differs in runs of {workload}" if by else "try another --by"
    return f"nothing to compare: no run has a value of {facet.spoken}; {remedy}"


def _check_arguments(runs: Sequence[Run], facet: Facet) -> None:
    """Raise NothingToCompareError if no command has an argument of the facet, which may be misspelt."""
    commands = {run.command for run in runs if run.command}
    known = {
        name.lstrip("-"): name for command in commands for name, value in parse_arguments(command).items() if value
    }
    for name in (part.argument for part in facet.parts if part.argument):
        if commands and all(find_argument(command, name) == NOT_GIVEN for command in commands):
            close = get_close_matches(name.lstrip("-"), known, n=1, cutoff=0.5)
            hint = f"there are: {_listed(sorted(known.values()))}" if known else "no command has a named argument"
            hint = f"did you mean {known[close[0]]}?" if close else hint
            raise NothingToCompareError(f"nothing to compare: no command has the argument {name}; {hint}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join([*names[:_MOST_NAMES], *(["…"] if len(names) > _MOST_NAMES else [])])


def lay_out(
    runs: Iterable[Run],
    facet: Facet,
    sides: Sequence[str],
    *,
    described: bool = False,
    chosen_by_name: bool = True,
    rows: Mapping[str, str] | None = None,
    across: Facet | None = None,
    every_status: bool = False,
) -> Layout:
    """Return the blocks in which at least two sides have runs, or one where nothing is compared.

    Args:
        runs, facet, sides: those to choose from, by values of the facet.
        described: whether blocks of one side count too, as for one side and for facets that only describe.
        chosen_by_name: whether the sides were asked for, so that each must have a run that succeeded.
        rows: run_id → a value in which all runs of a block must agree; others are left out. None: no such value.
        across: the facet of these values.
        every_status: whether runs count that did not succeed.

    Raises:
        NothingToCompareError: there is none; names the side that failed, or that in which the sides differ.
    """
    least = 1 if described or facet.describes or len(sides) == 1 else 2
    chosen = [run for run in runs if run.side in sides and (rows is None or run.run_id in rows)]
    alike: dict[tuple[str, str, str], list[Run]] = defaultdict(list)
    for run in chosen:
        alike["" if rows is None else rows[run.run_id], run.workload, run.parameters].append(run)
    found = [
        block
        for (row, *_), group in alike.items()
        for block in _divide(group, row, facet, sides, across=across, every_status=every_status)
    ]
    succeeded = {cell.side for block in found for cell in block.cells if cell.runs}
    # A side that failed is the answer to why nothing can be compared; one that was stopped is none.
    is_stopped = all(run.status == CANCELLED for run in chosen if run.side not in succeeded)
    if len(succeeded) == 1 and is_stopped and not chosen_by_name:
        least = 1
    kept = [block for block in found if _count_sides(block) >= least]
    if not kept:
        present = [side for side in sides if any(run.side == side for run in chosen)]
        if not chosen_by_name and succeeded and is_stopped:
            present = [side for side in present if side in succeeded]
        raise NothingToCompareError(_why_nothing(chosen, present, facet))
    blocks = sorted(kept, key=lambda block: -sum(len(cell.runs) for cell in block.cells))
    compared = {cell.side for block in blocks for cell in block.cells if cell.runs}
    left_out = []
    for block in (block for block in found if block not in blocks):
        what = tell_apart(block, found)
        left_out += [LeftOut(side=cell.side, runs=len(cell.runs), what=what) for cell in block.cells if cell.runs]
        for cell in (cell for cell in block.cells if not cell.runs):
            for status, number in cell.others.items():
                left_out.append(LeftOut(side=cell.side, runs=number, what=f"{what}, {status}"))
    return Layout(
        facet=facet,
        sides=tuple(side for side in sides if side in compared),
        blocks=tuple(blocks),
        left_out=tuple(left_out),
    )


def _divide(
    runs: Sequence[Run], row: str, facet: Facet, sides: Sequence[str], *, across: Facet | None, every_status: bool
) -> list[Block]:
    """Return the blocks of runs of one workload and its parameters.

    Where no condition is common to two sides, the runs are one block: warnings name the conditions that differ.
    """

    def make_block(held: Held, members: Sequence[Run]) -> Block:
        by_side: dict[str, list[Run]] = {side: [] for side in sides}
        for run in members:
            by_side[run.side or ""].append(run)
        cells = tuple(
            Cell(
                side=side,
                runs=tuple(run for run in of_side if every_status or run.status == "succeeded"),
                others=Counter(run.status or "unknown" for run in of_side if run.status != "succeeded"),
                compared=facet.arguments,
            )
            for side, of_side in by_side.items()
            if of_side
        )
        parameters = json.loads(runs[0].parameters)
        return Block(row=row, workload=runs[0].workload, parameters=parameters, held=dict(held), cells=cells)

    blocks = [make_block(held, members) for held, members in _by_condition(runs, facet, across).items()]
    if all(_count_sides(block) < 2 for block in blocks):
        whole = make_block((), runs)
        if _count_sides(whole) > 1:
            blocks = [whole]
    return [part for block in blocks for part in _by_arguments(block, facet)]


# From so many runs on each of two sides a command is compared apart from others.
_REPEATED = 2


def _by_arguments(block: Block, facet: Facet) -> list[Block]:
    """Divide a block by the arguments of its commands that are not compared, where two sides repeat the same ones.

    Runs that were made in pairs stay together, and so do those of commands that are not repeated. An argument that
    cannot be separated from the sides does not divide: warnings name it.
    """
    cells = [cell for cell in block.cells if cell.runs]
    if len(cells) < 2 or facet.describes or any(match_runs(cells[0], other) for other in cells[1:]):
        return [block]
    # Thousands of runs have few commands.
    every = {run.command for run in _runs(cells)}
    apart = facet.arguments.union(_find_inseparable(cells))
    rest_of = {command: without_arguments(identify_command(command), apart) for command in every}
    if len(set(rest_of.values())) == 1:
        return [block]
    # The rest of each run's command, and a command that has it.
    rests = {run.run_id: rest_of[run.command] for run in _runs(cells)}
    commands = {rests[run.run_id]: run.command for run in _runs(cells)}
    repeated: Counter[Identity] = Counter()
    for cell in cells:
        of_cell = Counter(rests[run.run_id] for run in cell.runs)
        repeated.update(rest for rest, runs in of_cell.items() if runs >= _REPEATED)
    chosen = [rest for rest in commands if repeated[rest] > 1]
    if not chosen:
        return [block]
    differing = differing_arguments([[command] for command in commands.values()])
    # Lone words say least, so they are last.
    names = sorted((name for name, _ in differing if name.lstrip("-") not in apart), key="".__eq__)
    blocks = []
    for rest in chosen:
        held = _find_held([commands[rest]], names)
        # Runs without success are counted where the first of the others are.
        parts = [_choose_runs(cell, rests, {rest}, others=rest == chosen[0]) for cell in block.cells]
        blocks.append(replace(block, held={**block.held, **held}, cells=tuple(parts)))
    having = Counter(rest for cell in cells for rest in {rests[run.run_id] for run in cell.runs})
    # Beside like commands, those of one side alone would show what else they do.
    alone = [rest for rest in commands if having[rest] == 1]
    if alone:
        blocks = [replace(each, named=tuple(names)) for each in blocks]
    for cell in block.cells:
        unlike = _choose_runs(cell, rests, alone, others=False)
        if unlike.runs:
            held = _find_held([run.command for run in unlike.runs], names)
            blocks.append(replace(block, held={**block.held, **held}, named=tuple(names), cells=(unlike,)))
    others = [rest for rest in commands if having[rest] > 1 and rest not in chosen]
    if others:
        held = _find_held([commands[rest] for rest in others], names)
        single = [_choose_runs(cell, rests, others, others=False) for cell in block.cells]
        blocks.append(replace(block, held={**block.held, **held}, cells=tuple(single)))
    return blocks


def _find_inseparable(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield the arguments, without hyphens, that have one value on each side and another one on each other side."""
    for name, values in differing_arguments([[run.command for run in cell.runs] for cell in cells]):
        if name and len(set(values)) == len(cells) and all(len(of_side) == 1 for of_side in values):
            yield name.lstrip("-")


def _find_held(commands: Collection[Command], names: Iterable[str]) -> dict[str, str]:
    """Return the value of each argument (empty name: lone words) that commands have in common, or that they differ."""
    held = {}
    for name in names:
        values = {find_argument(each, name) if name else " ".join(identify_command(each)[1]) for each in commands}
        held[name] = values.pop() if len(values) == 1 else OTHER_VALUES
    return held


def _runs(cells: Iterable[Cell]) -> list[Run]:
    return [run for cell in cells for run in cell.runs]


def _choose_runs(cell: Cell, rests: Mapping[str, Identity], chosen: Collection[Identity], *, others: bool) -> Cell:
    """Return a cell with those of its runs that have one of the chosen rests of a command."""
    runs = tuple(run for run in cell.runs if rests[run.run_id] in chosen)
    return replace(cell, runs=runs, others=cell.others if others else {})


def _count_sides(block: Block) -> int:
    return sum(1 for cell in block.cells if cell.runs)


def _why_nothing(runs: Sequence[Run], sides: Sequence[str], facet: Facet) -> str:
    """Return why no two sides can be compared, and a remedy."""
    for side in sides:
        of_side = [run for run in runs if run.side == side]
        if all(run.status in UNFINISHED for run in of_side):
            return f"nothing to compare: no run of {side} has ended yet; watch them with `collector watch`"
        if not any(run.status == "succeeded" for run in of_side):
            counts = statuses(Counter(run.status or "unknown" for run in of_side))
            ended = [run for run in of_side if run.status not in UNFINISHED]
            with_output = [run for run in ended if not ended_in_queue(run)]
            last = (with_output or ended)[-1]
            programs = list(dict.fromkeys(run.workload for run in of_side))
            named = facet.name_side(side) if "all" not in facet.names else first_few(programs)
            named = repr(named) if " " in named else named
            reason = f" ({last.reason})" if last.reason else ""
            more = "output: `collector logs" if with_output else "see: `collector show"
            return f"no run of {named} succeeded: {counts}{reason}; {more} {last.run_id}`"
    if not sides:
        return "nothing to compare: no run has a value of --rows; try another"
    succeeded = [run for run in runs if run.status == "succeeded"]
    workloads = {side: {run.workload for run in succeeded if run.side == side} for side in sides}
    common = sorted(set.intersection(*workloads.values())) or [
        name for name in sorted(set().union(*workloads.values())) if sum(name in of for of in workloads.values()) > 1
    ]
    if not common:
        has = "; ".join(f"{side} has {', '.join(sorted(names))}" for side, names in workloads.items())
        return f"nothing to compare: no workload ran on two sides: {has}. Programs get a common one by --name"
    alike = [run for run in succeeded if run.workload == common[0]]
    names = dict.fromkeys(name for run in alike for name in json.loads(run.parameters))
    differing = []
    for name in names:
        values = [
            tuple(sorted({str(json.loads(run.parameters).get(name)) for run in alike if run.side == side}))
            for side in sides
        ]
        if len(set(values)) > 1:
            differing.append((name, write_argument(name, values)))
    first = differing[0][0] if differing else ""
    return (
        f"nothing to compare: {common[0]} ran with other parameters on each side: "
        f"{'; '.join(text for _, text in differing)}. Compare these with --by parameter:{first}"
    )


def first_few(texts: Sequence[str], most: int = 2) -> str:
    """Return the first texts in one line, and the number of the others, if they are more than one."""
    most += len(texts) == most + 1
    rest = len(texts) - most
    return ", ".join([*texts[:most], *([f"{rest} more"] if rest > 0 else [])])


def describe(block: Block) -> str:
    """Return a block in one line: the workload, its parameters and what else was held equal."""
    return _write_settings(block, block.settings)


def tell_apart(block: Block, blocks: Iterable[Block], *, briefly: bool = False) -> str:
    """Return the block's workload and the settings that distinguish it from the other blocks of that workload.

    `briefly` leaves out settings that distinguish it from no further block than those before.
    """
    others = [other.settings for other in blocks if other.workload == block.workload and other is not block]
    names = {*block.named, *(telling if briefly else distinguishing)(block.settings, others)}
    return _write_settings(block, {name: value for name, value in block.settings.items() if name in names})


# Of an argument of which a block has several values.
OTHER_VALUES = "other values"


def _write_settings(block: Block, settings: Mapping[str, Any]) -> str:
    """Return a workload with settings after its name: `mnist batch-size=32 on satori`, `train.py --procs 2`."""
    written = [block.workload]
    for name, value in settings.items():
        text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
        if isinstance(value, float):
            text = text.removesuffix(".0")
        if text == OTHER_VALUES:
            continue
        if name not in block.held:
            written.append(f"{name}={text}")
        elif text in ("none", NOT_GIVEN):
            written.append(f"without {name}")
        else:
            written.append(f"{_BEFORE.get(name, name)} {text if text != GIVEN else ''}".rstrip())
    others = ["with other settings"] if OTHER_VALUES in settings.values() else []
    return " ".join([*written, *others])


# Before the values of what is held equal; arguments have their names there.
_BEFORE = {**{facet.name: facet.preposition for facet in FACETS}, "image": "with the image", "": "with", "unit": "in"}


Held = tuple[tuple[str, str | None], ...]
_read_conditions = attrgetter("side", *CONDITIONS)


def _by_condition(runs: Sequence[Run], facet: Facet, across: Facet | None) -> dict[Held, list[Run]]:
    """Divide runs by the conditions that vary within some side.

    A condition with one value on each side cannot be separated from the side itself: it does not divide, and warnings
    name the conditions in which the sides differ.
    """
    values: dict[tuple[str, str | None], set[str | None]] = defaultdict(set)
    # A run that failed early has no GPU yet. Thousands of runs have few different conditions.
    for side, *conditions in set(map(_read_conditions, (run for run in runs if run.status == "succeeded"))):
        for name, value in zip(CONDITIONS, conditions, strict=True):
            values[name, side].add(value)
    varying = {name for (name, _), of_side in values.items() if len(of_side) > 1}
    chosen = {name for each in (facet, across) if each for name in (each.name, *each.fixes)}
    held = [name for name in CONDITIONS if name in varying - chosen]
    groups: dict[Held, list[Run]] = defaultdict(list)
    for run in runs:
        groups[tuple((name, getattr(run, name)) for name in held)].append(run)
    return groups
