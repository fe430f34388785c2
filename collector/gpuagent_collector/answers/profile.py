"""`collector profile`: the operators and kernels that take a step's time."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any

from gpuagent_collector.answers.profile_data import (
    COPIES,
    KERNELS,
    OTHERS,
    LaneTimes,
    PartTimes,
    Row,
    add_up,
    load_operations,
    load_part_times,
    load_step_seconds,
    short_names,
    traced_runs,
    why_not_traced,
)
from gpuagent_collector.choices import PartKind
from gpuagent_collector.present.answer import Answer, Caveat, Legend, Section
from gpuagent_collector.present.human import Notation, in_unit, notation, significant
from gpuagent_collector.present.shortening import shorten
from gpuagent_collector.present.table import Column, Table
from gpuagent_collector.present.values import ABSENT
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.arguments import identify_command, name_commands
from gpuagent_collector.runs.cells import Block, Cell, Layout, choose_sides, first_few, lay_out
from gpuagent_collector.runs.data import Facts, Run, load_facts
from gpuagent_collector.runs.facets import CONDITIONS, Facet, can_name, find_facet
from gpuagent_collector.runs.find import find_runs, median_run
from gpuagent_collector.runs.specs import SpecRow, spec_rows
from gpuagent_collector.runs.words import distinguishing, write_command, write_value
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.text import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the shown runs.

    Attributes:
        name: A or B, or its value of the facet.
        runs: number of traced runs of which it is the median; 1 where it was named itself.
        step_seconds: busy and idle time of the GPU in a step, as far as known, by result.
    """

    name: str
    run: Run
    runs: int = 1
    step_seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A profile with everything that is shown of it.

    Attributes:
        sides: one or two.
        lanes: at least one.
        differing: properties of runs, nodes, GPUs and software in which two sides differ.
        differing_settings: `workload` and names of parameters in which two sides differ.
        parts: the operations of each part of each side; empty unless requested.
        other_settings: number of other sets of settings that the sides have in common; they are not shown.
        is_of_runs: whether its sides are runs that were named, A and B, instead of values of a facet.
        others: of one such run, the traced runs of its workload beside it, the oldest first.
        is_newest: whether it was chosen as the newest of them.
    """

    sides: tuple[Side, ...]
    lanes: tuple[LaneTimes, ...]
    differing: tuple[SpecRow, ...]
    differing_settings: tuple[str, ...]
    other_settings: int = 0
    parts: tuple[PartTimes, ...] = ()
    is_of_runs: bool = False
    others: tuple[Run, ...] = ()
    is_newest: bool = False


def _find_newest(workload: str | None, runs: Sequence[Run], traced: Collection[str]) -> str:
    """Return the newest run of a workload that has a trace; None: of any workload."""
    of_workload = [run for run in runs if workload in (None, run.workload)]
    if workload and not of_workload:
        raise MisuseError(f"{workload} is no run, workload or platform; `{write_command('runs', {})}` lists runs")
    newest = [run.run_id for run in of_workload if run.run_id in traced]
    if not newest:
        raise GpuAgentError(f"no run{f' of {workload}' if workload else ''} has a trace: {how_to_trace(of_workload)}")
    return newest[-1]


def study_profile(
    ask: Ask,
    *,
    values: Sequence[str],
    by: str | None,
    workload: str | None,
    experiment: str | None,
    each: PartKind | None = None,
) -> Study:
    """Return the profile of one run, or of two side by side.

    Args:
        ask: runs a query on the store.
        values: one or two runs, of a workload its newest with a trace, or with `by` values of that facet, each of which
            stands for its median run; none: the newest run with a trace.
        by: name of the facet; None: values are runs, or else platforms.
        workload, experiment: only runs of these; None: all.
        each: the parts of the runs whose operations are shown too; None: none.

    Raises:
        MisuseError: a run, facet, value, workload or experiment is unknown, or more than two values are given.
        GpuAgentError: there is no trace to show; with how to get one.
    """
    facet = find_facet(by or "platform")
    runs = find_runs(ask, facet, workload=workload, experiment=experiment)
    by_id = {run.run_id: run for run in runs}
    are_platforms = bool(values) and {run.side for run in runs}.difference(by_id).issuperset(values)
    traced, named = traced_runs(ask), values
    if by is None and not are_platforms:
        names = [name if name in by_id else _find_newest(name, runs, traced) for name in values]
        values = names or [_find_newest(None, runs, traced)]
    if not 1 <= len(values) <= 2 or len(set(values)) < len(values):
        raise MisuseError(f"name one of the {facet.plural if by else 'runs'}, or two different ones")
    if by is not None or are_platforms:
        return _study_medians(ask, runs, facet, values, each)
    chosen = [by_id[run_id] for run_id in values]
    for run in chosen:
        if run.run_id not in traced:
            why = why_not_traced(ask, run.run_id) or how_to_trace([run])
            raise GpuAgentError(f"the run {run.run_id} has no trace: {why}")
    sides = [Side(name=name, run=run) for name, run in zip("AB", chosen, strict=False)]
    study = study_sides(ask, sides, load_facts(ask, values), each)
    first = chosen[0]
    alike = [run for run in runs if run.workload == first.workload and run.run_id in traced and run != first]
    others = tuple(alike) if len(sides) == 1 else ()
    return replace(study, is_of_runs=True, others=others, is_newest=first.run_id not in named)


def _study_medians(ask: Ask, runs: Sequence[Run], facet: Facet, values: Sequence[str], each: PartKind | None) -> Study:
    """Return the profile of the median run of each value of the facet, among traced runs that agree in all else.

    Raises:
        MisuseError: no run has the value, or the runs are of several workloads.
        GpuAgentError: no run with a value has a trace, or none of both sides are alike.
    """
    sides = tuple(values)
    if len(values) > 1:
        sides = choose_sides(runs, facet, values, None)
    elif sides[0] not in (present := sorted({run.side for run in runs if run.side is not None})):
        raise MisuseError(f"no run has the {facet.name} {sides[0]}; there are: {', '.join(present)}")
    traced = traced_runs(ask)
    with_trace = [run for run in runs if run.run_id in traced and run.status == "succeeded" and run.side in sides]
    for side in sides:
        if not any(run.side == side for run in with_trace):
            how = how_to_trace([run for run in runs if run.side == side])
            raise GpuAgentError(f"no run with the {facet.name} {side} that succeeded has a trace: {how}")
    workloads = sorted({run.workload for run in with_trace})
    if len(workloads) > 1:
        raise MisuseError(f"name one of the workloads with --workload: {', '.join(workloads)}")
    # The runs that agree in all but the facet, the largest group first.
    alike: list[list[tuple[str, Sequence[Run]]]]
    if len(sides) > 1:
        blocks = lay_out(with_trace, facet, sides).blocks
        alike = [[(cell.side, cell.runs) for cell in block.cells] for block in blocks]
    else:
        groups: dict[tuple[object, ...], list[Run]] = {}
        for run in with_trace:
            key = (run.parameters, *(getattr(run, condition) for condition in CONDITIONS))
            groups.setdefault(key, []).append(run)
        alike = [[(sides[0], group)] for group in sorted(groups.values(), key=lambda group: -len(group))]
    members, *others = alike
    facts = load_facts(ask, [run.run_id for _, of_side in members for run in of_side])
    # By throughput, as in a comparison of the same runs.
    medians = [
        Side(name=side, run=median_run(of_side, facts, "throughput"), runs=len(of_side)) for side, of_side in members
    ]
    return replace(study_sides(ask, medians, facts, each), other_settings=len(others))


def how_to_trace(runs: Sequence[Run]) -> str:
    """Return the remedy for runs without a trace; none: of any workload."""
    if runs and all(run.command for run in runs):
        return "only built-in workloads take one; a program of your own can report `op` events (docs/your-program.md)"
    return (
        "on a GPU built-in training workloads take a short one, except with `--trace false`; "
        "with `gpuagent run WORKLOAD --profile` they trace operators, on a CPU, too"
    )


def study_sides(ask: Ask, sides: Sequence[Side], facts: Facts, each: PartKind | None = None) -> Study:
    """Return the profile of chosen runs, and of their parts on request.

    Raises:
        GpuAgentError: their traces contain no operation that took any time.
    """
    run_ids = [side.run.run_id for side in sides]
    seconds = load_step_seconds(ask, run_ids)
    operations = load_operations(ask, run_ids)
    lanes = add_up([operations.get(run_id, ()) for run_id in run_ids])
    if not lanes:
        raise GpuAgentError("the traces contain no operation that took any time")
    settings = [_settings(side.run) for side in sides]
    names = dict.fromkeys(name for one in settings for name in one)
    # The properties in which two runs differ: these may explain different kernels.
    differing: tuple[SpecRow, ...] = ()
    if len(sides) > 1:
        cells = tuple(Cell(side=side.name, runs=(side.run,), others={}) for side in sides)
        block = Block(workload=sides[0].run.workload, parameters={}, held={}, cells=cells)
        # No property has this facet's name, so none is left out as the compared one.
        facet = Facet(name="run", plural="runs", expression="run.run_id")
        layout = Layout(facet=facet, sides=tuple(side.name for side in sides), blocks=(block,), left_out=())
        differing = tuple(row for row in spec_rows(layout, facts) if row.differs)
    return Study(
        sides=tuple(replace(side, step_seconds=seconds.get(side.run.run_id, {})) for side in sides),
        lanes=lanes,
        differing=differing,
        differing_settings=tuple(name for name in names if settings[0].get(name) != settings[-1].get(name)),
        parts=tuple(load_part_times(ask, side.name, side.run, facts, each) for side in sides) if each else (),
    )


def find_caveats(study: Study) -> Iterator[Caveat]:
    """Yield every warning that applies."""
    if study.differing_settings:
        yield Caveat(
            code="settings_differ",
            text=f"the settings differ: {', '.join(study.differing_settings)}",
            remedy="name two runs with the same ones",
        )
    if len(study.sides) > 1:
        yield Caveat(
            code="one_run",
            text="a few steps of one run a side may differ by chance",
            remedy="repeat both: `collector compare` tests the repeats",
        )
    titles = [lane.lane.title for lane in study.lanes if None in lane.totals]
    if titles:
        yield Caveat(
            code="one_sided",
            text=f"only one side has: {'; '.join(titles)}",
            remedy="run both with `--profile`, or both without, on GPUs or both on CPUs",
        )
    if any(row.unsure and row.only_on is not None for lane in study.lanes for row in lane.rows):
        yield Caveat(
            code="not_listed",
            text="a run lists the 100 longest operations of each kind; one that is missing on a side may be "
            "among the rest",
            remedy="check its time on the other side: on this one it is shorter than all that are listed",
        )
    if study.other_settings:
        yield Caveat(
            code="other_settings",
            text=f"traced runs with {counted(study.other_settings, 'other set')} of settings are not shown",
            remedy="name the runs",
        )


# Among the settings in which two sides differ.
_WORKLOAD = "workload"
# The tables have the other operations.
_SPOKEN = 3
# One run a side cannot separate smaller differences, as shares of the time, from chance.
_ALIKE_SHARE = 0.01

_write_time = in_unit("seconds")


def answer(study: Study, *, brief: bool = False) -> str:
    """Return the difference between two steps and its parts, or the longest operations of one.

    Where it is brief, differences between the runs stand for the numbers of kernels and the idle time.
    """
    # The GPU's lanes with all sides, else any with all sides, else any.
    shared = [lane for lane in study.lanes if None not in lane.totals]
    lanes = [lane for lane in shared if lane.lane in (KERNELS, COPIES)] or shared[:1] or study.lanes[:1]
    most = _SPOKEN - (brief and len(study.sides) > 1)
    rows = sorted((row for lane in lanes for row in lane.rows), key=lambda row: -abs(row.seconds))[:most]
    totals = [sum(lane.totals[side] or 0.0 for lane in lanes) for side in range(len(study.sides))]
    where = "on the GPU" if lanes[0].lane in (KERNELS, COPIES) else "in operators"
    if len(study.sides) > 1:
        sentences = [_say_difference(study, rows, totals, where)]
        sentences += _say_properties(study) if brief else _say_exclusive(study)
    else:
        listed = []
        for row in rows:
            share = significant(100 * row.seconds / totals[0])
            listed.append(f"{_write_time(row.seconds)} ({share} %) in {_spoken_name(row)}")
        of_run = _name_settings(study.sides[0].run, study.others)
        sentences = [f"A step{of_run} takes {_write_time(totals[0])} {where}: {'; '.join(listed)}."]
    return " ".join([*sentences, *([] if brief and len(study.sides) > 1 else _say_steps(study))])


def _name_settings(run: Run, others: Sequence[Run]) -> str:
    """Return the settings in which a run differs from others of its workload: ` of gpt with --precision tf32`."""
    parameters = [json.loads(one.parameters) for one in (run, *others)]
    settings = distinguishing(parameters[0], parameters[1:])
    words = [f"{_option(name)} {write_value(value)}" for name, value in settings.items() if value is not None]
    names = name_commands(one.command for one in (run, *others) if one.command)
    if len(set(names.values())) > 1:
        words.append(names.get(run.command, ""))
    return f" of {run.workload} with {first_few(words, _SPOKEN)}" if words else ""


def _settings(run: Run) -> dict[str, Any]:
    return {_WORKLOAD: run.workload, **json.loads(run.parameters)}


def _option(name: str) -> str:
    return name if name == _WORKLOAD else f"--{name.replace('_', '-')}"


def _say_properties(study: Study) -> Iterator[str]:
    sides = [_settings(side.run) for side in study.sides]
    values = {_option(name): [write_value(one.get(name, ABSENT)) for one in sides] for name in study.differing_settings}
    values |= {row.title: [", ".join(of_side) or ABSENT for of_side in row.values] for row in study.differing}
    differing = [f"{title} ({' and '.join(of_sides)})" for title, of_sides in values.items()]
    if differing:
        # Many properties follow from the settings.
        yield f"The runs differ in {first_few(differing, min(len(study.differing_settings), _SPOKEN) or _SPOKEN)}."


def _say_difference(study: Study, rows: Sequence[Row], totals: Sequence[float], where: str) -> str:
    first, second = (side.name for side in study.sides)
    if not all(totals):
        return f"{second if totals[0] else first} has no data {where}, so there is nothing to compare."
    difference, least = totals[1] - totals[0], _ALIKE_SHARE * max(totals)
    scale = notation(totals, "seconds")
    both = f"({scale.write_bare(totals[1])} and {scale.write(totals[0])})"
    if abs(difference) < least:
        how = f"as long {where} as one of {first}, to within {significant(100 * _ALIKE_SHARE)} % {both}"
    else:
        longer = "longer" if difference > 0 else "less"
        how = f"{_write_time(abs(difference))} {longer} {where} than one of {first} {both}"
    parts = [_say_contribution(row, study) for row in rows if abs(row.seconds) >= least]
    return f"A step of {second} takes {how}{': ' if parts else ''}{'; '.join(parts)}."


def _say_contribution(row: Row, study: Study) -> str:
    text = f"{_write_time(abs(row.seconds))} {'more' if row.seconds > 0 else 'less'} in {_spoken_name(row)}"
    if row.only_on is None or row.name == OTHERS:
        return text
    other = study.sides[1 - row.only_on].name
    if row.unsure:
        return f"{text}, not among those listed of {other}"
    return f"{text}, which {other} does not {'launch' if row.kind == 'kernel' else 'have'}"


def _spoken_name(row: Row) -> str:
    return f"{row.kind}s without a row of their own" if row.name == OTHERS else row.short_name


def _say_exclusive(study: Study) -> Iterator[str]:
    kernels = study.lanes[0]
    if kernels.lane is not KERNELS or None in kernels.totals:
        return
    listed = []
    for number, side in enumerate(study.sides):
        rows = [row for row in kernels.exclusive if row.only_on == number]
        if rows:
            seconds = sum(abs(row.seconds) for row in rows)
            listed.append(f"{len(rows)} launched by {side.name} alone ({_write_time(seconds)} per step)")
    what = "Listed kernels" if any(row.unsure for row in kernels.exclusive) else "Kernels"
    yield f"{what}: {', '.join(listed)}." if listed else "Both launch the same kernels."


def _say_steps(study: Study) -> Iterator[str]:
    texts = []
    for side in study.sides:
        busy = side.step_seconds.get("gpu_busy_seconds_per_step")
        gap = side.step_seconds.get("gpu_gap_seconds_per_step")
        if busy is not None and gap is not None:
            scale = notation([busy, gap], "seconds")
            whose = f" of {side.name}" if len(study.sides) > 1 else ""
            texts.append(f"busy for {scale.write_bare(busy)} and idle for {scale.write(gap)} of a measured step{whose}")
    if texts:
        yield f"The GPU was {'; '.join(texts)}."


def answer_profile(ask: Ask, *, top: int, **asked: Any) -> Answer:
    """Answer the command; `asked` as for `study_profile`."""
    if not asked["by"] and (asked["workload"] or asked["experiment"]):
        raise MisuseError("--workload and --experiment need --by; leave them out for named runs")
    study = study_profile(ask, **asked)
    return replace(render(study, top=top), next=_next(study, asked))


def _next(study: Study, asked: Mapping[str, Any]) -> str:
    """Return the command that compares all runs of both sides, or sets the newest run beside one with other settings.

    Where there is no such other run, or the only one was named, it is that which shows when the run did what.
    """
    first, last = study.sides[0].run, study.sides[-1].run
    if len(study.sides) == 1:
        nearest = _find_nearest(first, study.others) if study.is_newest else None
        if nearest:
            return write_command("profile", {}, first.run_id, nearest.run_id)
        return write_command("trace", {"-o": f"{first.run_id}.json.gz"}, first.run_id)
    if not study.is_of_runs:
        chosen = {"--workload": asked["workload"], "--experiment": asked["experiment"]}
        return write_command("compare", {"--by": asked["by"], **chosen}, sides=[side.name for side in study.sides])
    if first.workload != last.workload:
        return write_command("compare", {"--by": _WORKLOAD}, sides=[first.workload, last.workload])
    by = ",".join(f"parameter:{name}" for name in study.differing_settings if can_name(name))
    if not by and identify_command(first.command) != identify_command(last.command):
        by = "command"
    if by:
        return write_command("compare", {"--workload": first.workload, "--by": by})
    return write_command("compare", {"--by": "run"}, sides=[first.run_id, last.run_id])


def _find_nearest(run: Run, others: Sequence[Run]) -> Run | None:
    """Return the newest run with other settings that has most in common with a run; None: all have the same."""

    def count_differences(other: Run) -> int:
        own, its = _settings(run), _settings(other)
        names = own.keys() | its.keys()
        is_other = identify_command(run.command) != identify_command(other.command)
        return is_other + len([name for name in names if own.get(name) != its.get(name)])

    apart = [other for other in reversed(others) if count_differences(other)]
    places = attrgetter(*CONDITIONS)
    return min(apart, key=lambda other: (places(other) != places(run), count_differences(other)), default=None)


def render(study: Study, *, top: int) -> Answer:
    """Return the answer; CSV has a line for each operation. A terminal shows at most `top` of them in each table."""
    columns: Sequence[Column] = _SIDES
    if len(study.sides) == 1:
        names = [study.sides[0].run.run_id]
        # The letter of a run alone is only in data.
        columns = (Column("name"), *_SIDES[1:]) if study.is_of_runs else _SIDES
    else:
        names = [f"{side.name} {side.run.run_id}" if study.is_of_runs else side.name for side in study.sides]
    newest = f", the newest of {len(study.others) + 1} traced runs" if study.is_newest and study.others else ""
    sides, sections, facts = Table(columns, study.sides), [], {}
    tables: list[Table] = []
    if study.differing:
        columns = [Column(None, "", "title", left=True)]
        columns += [Column(None, side.name, f"values.{at}", left=True) for at, side in enumerate(study.sides)]
        differences = [Table(columns, study.differing)]
        sections.append(Section("Differences that may explain different kernels", differences, is_detail=True))
    if study.lanes[0].lane is KERNELS and study.lanes[0].exclusive:
        sections.append(_only_on_one_side(study, top))
    for lane in study.lanes:
        scale = notation([amount.seconds for row in lane.rows for amount in row.amounts if amount], "seconds")
        table = _operations(lane, study, scale, top)
        sections.append(Section(f"{lane.lane.title}, {scale.symbol} per step", [table], is_detail=bool(tables)))
        tables.append(table)
        totals = {"total_seconds": lane.totals, "difference_seconds": lane.difference}
        facts[lane.lane.name] = {**totals, "operations": table}
    return Answer(
        heading=f"Profile: {' · '.join(names)}{newest}",
        text=answer(study),
        short=answer(study, brief=True),
        parts=[Legend("", sides), Legend("", _LEGEND)],
        more="the runs, copies and more",
        sections=[*sections, *(_part_section(times, study, top) for times in study.parts)],
        caveats=tuple(find_caveats(study)),
        facts={
            "parts": study.parts,
            "sides": sides,
            "differing": {row.title: row.values for row in study.differing},
            "tables": facts,
        },
        csv=tables,
        sides=names,
    )


_LEGEND = (
    "Times and calls are means over the traced steps and the ranks, all calls of a name added up; shares are of the "
    "side's time in a table."
)


def _describe(side: Side) -> str:
    run = side.run
    median = f"; the median of {side.runs} runs by throughput" if side.runs > 1 else ""
    place = ", ".join(filter(None, (run.environment, run.platform, run.nodes)))
    return f"{run.workload}{f': {place}' if place else ''}{median}"


_PLACE = ("workload", "platform", "environment", "image", "interference", "limits", "nodes")
_STEP_SECONDS = ("gpu_busy_seconds_per_step", "gpu_gap_seconds_per_step")
_SIDES = (
    Column("name", "", left=True),
    Column("run_id", "run", "run.run_id", left=True),
    Column("median_of", value="runs"),
    Column(None, "what", _describe, left=True),
    *(Column(name, value=f"run.{name}") for name in _PLACE),
    Column("devices", value="run.device"),
    Column(None, "GPU", lambda side: side.run.device or "no GPU known", left=True),
    Column("parameters", value=lambda side: json.loads(side.run.parameters)),
    *(Column(name, value=f"step_seconds.{name}") for name in _STEP_SECONDS),
)


def _only_on_one_side(study: Study, top: int) -> Section:
    rows = study.lanes[0].exclusive
    scale = notation([row.seconds for row in rows], "seconds")
    columns = (
        Column(None, "launched by", lambda row: study.sides[row.only_on or 0].name, left=True),
        Column(None, "kernel", "short_name", left=True),
        Column(None, "calls", _calls),
        Column(None, "per step", lambda row: scale.write(abs(row.seconds))),
    )
    table = Table(columns, rows, most=top, more=partial(_more, scale))
    return Section("Kernels that only one side launched", [table], is_detail=True)


# Of an operation's name, where there is little room.
_MOST_CHARACTERS = 31
# A table of more operations was asked for.
_FEW = 5


def _operations(lane: LaneTimes, study: Study, scale: Notation, top: int) -> Table:
    """Return the operations of a lane; the sides are a and b in names of columns."""
    names = [row.short_name for row in lane.rows[:top]]
    short = dict(zip(names, shorten(names, _MOST_CHARACTERS), strict=True))
    columns = [
        *(Column("kind"), Column("name"), Column(None, "", "short_name", left=True, wide=True)),
        Column(None, "", lambda row: short.get(row.short_name, row.short_name), left=True, wide=False),
    ]
    foot = [f"all {len(lane.rows)}", *(ABSENT if total is None else scale.write_bare(total) for total in lane.totals)]
    for at, (letter, side) in enumerate(zip("ab", study.sides, strict=False)):
        title = side.name if len(study.sides) > 1 else "time"
        columns.append(Column(f"{letter}_seconds", title, f"amounts.{at}.seconds", show=scale.write_bare))
        columns += [Column(f"{letter}_{name}", value=f"amounts.{at}.{name}") for name in ("share_percent", "calls")]
    if len(study.sides) > 1:
        title = f"{study.sides[1].name} − {study.sides[0].name}"
        columns.append(Column("difference_seconds", title, "seconds", show=scale.write_difference))
        columns.append(Column("only_on", value=lambda row: None if row.only_on is None else "ab"[row.only_on]))
        foot.append(ABSENT if lane.difference is None else scale.write_difference(lane.difference))
    columns += [Column(None, "share", _shares), Column(None, "calls", _calls)]
    about = {"table": lane.lane.name}
    return Table(
        columns,
        lane.rows,
        about=about,
        foot=[tuple(foot)],
        most=top,
        can_shrink=top <= _FEW,
        more=partial(_more, scale),
    )


def _shares(row: Row) -> str:
    shares = [significant(amount.share_percent, 2) if amount else ABSENT for amount in row.amounts]
    return f"{' / '.join(shares)} %"


def _calls(row: Row) -> str:
    return " / ".join(significant(amount.calls) if amount else ABSENT for amount in row.amounts)


def _more(scale: Notation, rest: Sequence[Row]) -> str | None:
    """Return what the rows that a terminal does not show have at most; None: nothing."""
    if not rest[0].seconds:
        return None
    return f"{len(rest)} more, none above {scale.write(abs(rest[0].seconds))}; --top shows them."


def _part_section(times: PartTimes, study: Study, top: int) -> Section:
    whose = f" of {times.side}" if len(study.sides) > 1 else ""
    heading = f"{'Kernels and copies' if times.on_gpu else 'Operators on the host'} by part{whose}"
    if not times.seconds:
        return Section(heading, ["The trace does not tell the parts of this run apart."])
    names = short_names(times.operations)
    totals = {part: sum(seconds.values()) for part, seconds in times.seconds.items()}
    scale = notation(list(totals.values()), "seconds")

    def cell(part: str, name: str) -> str | None:
        seconds = times.seconds[part].get(name)
        if seconds is None:
            return None
        return f"{scale.write_bare(seconds)} ({significant(100 * seconds / totals[part])} %)"

    rows = [(names[name], *(cell(part, name) or ABSENT for part in totals)) for name in times.operations]
    columns = [Column(None, "", left=True), *(Column(None, part) for part in totals)]
    foot = ("all", *map(scale.write_bare, totals.values()))
    return Section(f"{heading}, {scale.symbol} per step (share)", [Table(columns, rows, foot=[foot], keys=1, most=top)])
