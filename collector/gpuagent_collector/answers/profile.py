"""`collector profile`: the operators and kernels that take a step's time."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpuagent_collector.answers.profile_data import (
    COPIES,
    KERNELS,
    OTHERS,
    Amount,
    LaneTimes,
    PartTimes,
    Row,
    load_operations,
    load_part_times,
    load_step_seconds,
    make_tables,
    short_names,
    traced_runs,
    why_not_traced,
)
from gpuagent_collector.choices import PartKind
from gpuagent_collector.present.answer import Answer, Caveat, Section
from gpuagent_collector.present.human import Notation, notation, significant
from gpuagent_collector.present.table import Column, Table
from gpuagent_collector.present.values import ABSENT
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import Block, Cell, Layout, choose_sides, lay_out
from gpuagent_collector.runs.data import Facts, Run, load_facts
from gpuagent_collector.runs.facets import CONDITIONS, Facet, find_facet
from gpuagent_collector.runs.find import find_runs, median_run
from gpuagent_collector.runs.specs import SpecRow, spec_rows
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.text import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The runs to show, each with the name of its side and the number of runs of which it is the median."""

    runs: tuple[tuple[str, Run, int], ...]
    facts: Facts
    other_settings: int = 0


def choose_runs(ask: Ask, runs: Iterable[Run], run_ids: Sequence[str]) -> Chosen:
    """Return the named runs, as A and B.

    Raises:
        MisuseError: there is no such run.
        GpuAgentError: one has no trace; with the reason, or how to get one.
    """
    by_id = {run.run_id: run for run in runs}
    for run_id in run_ids:
        if run_id not in by_id:
            raise MisuseError(
                f"no run has the id {run_id}; list runs with `collector runs`, or name values of a facet with --by"
            )
    traced = traced_runs(ask)
    for run_id in run_ids:
        if run_id not in traced:
            raise GpuAgentError(f"the run {run_id} has no trace: {why_not_traced(ask, run_id) or HOW_TO_TRACE}")
    named = zip("AB", run_ids, strict=False)
    return Chosen(runs=tuple((name, by_id[run_id], 1) for name, run_id in named), facts=load_facts(ask, run_ids))


def choose_medians(ask: Ask, runs: Sequence[Run], facet: Facet, values: Sequence[str]) -> Chosen:
    """Return the median run of each value of the facet, among traced runs that agree in all else.

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
            raise GpuAgentError(f"no run with the {facet.name} {side} that succeeded has a trace: {HOW_TO_TRACE}")
    workloads = sorted({run.workload for run in with_trace})
    if len(workloads) > 1:
        raise MisuseError(f"name one of the workloads with --workload: {', '.join(workloads)}")
    members, *others = _alike(with_trace, facet, sides)
    facts = load_facts(ask, [run.run_id for _, of_side in members for run in of_side])
    return Chosen(
        # By throughput, as in a comparison of the same runs.
        runs=tuple((side, median_run(of_side, facts, "throughput"), len(of_side)) for side, of_side in members),
        facts=facts,
        other_settings=len(others),
    )


# The runs of each side.
Members = Sequence[tuple[str, Sequence[Run]]]


def _alike(runs: Sequence[Run], facet: Facet, sides: Sequence[str]) -> list[Members]:
    """Return the runs that agree in all but the facet, the largest group first."""
    if len(sides) > 1:
        blocks = lay_out(runs, facet, sides).blocks
        return [[(cell.side, cell.runs) for cell in block.cells] for block in blocks]
    groups: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        key = (run.parameters, *(getattr(run, condition) for condition in CONDITIONS))
        groups.setdefault(key, []).append(run)
    return [[(sides[0], group)] for group in sorted(groups.values(), key=lambda group: -len(group))]


# The remedy for runs without a trace.
HOW_TO_TRACE = (
    "on a GPU every training run takes a short one, except with `--trace false`; "
    "with `--profile` it traces operators, on a CPU, too"
)


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
    runs: int
    step_seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A profile with everything that is shown of it.

    Attributes:
        sides: one or two.
        tables: at least one.
        differing: properties of runs, nodes, GPUs and software in which two sides differ.
        differing_settings: `workload` and names of parameters in which two sides differ.
        parts: the operations of each part of each side; empty unless requested.
        other_settings: number of other sets of settings that the sides have in common; they are not shown.
    """

    sides: tuple[Side, ...]
    tables: tuple[LaneTimes, ...]
    differing: tuple[SpecRow, ...]
    differing_settings: tuple[str, ...]
    other_settings: int
    parts: tuple[PartTimes, ...] = ()


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
        values: one or two runs, or with `by` values of that facet, each of which stands for its median run.
        by: name of the facet; None: values are runs.
        workload, experiment: only runs of these; None: all.
        each: the parts of the runs whose operations are shown too; None: none.

    Raises:
        MisuseError: a run, facet, value, workload or experiment is unknown, or more than two values are given.
        GpuAgentError: there is no trace to show; with how to get one.
    """
    if not 1 <= len(values) <= 2 or len(set(values)) < len(values):
        raise MisuseError("name one run, or two different ones: `collector profile A B`")
    facet = find_facet(by or "platform")
    runs = find_runs(ask, facet, workload=workload, experiment=experiment)
    chosen = choose_runs(ask, runs, values) if by is None else choose_medians(ask, runs, facet, values)
    return study_chosen(ask, chosen, each)


def study_chosen(ask: Ask, chosen: Chosen, each: PartKind | None = None) -> Study:
    """Return the profile of chosen runs, and of their parts on request.

    Raises:
        GpuAgentError: their traces contain no operation that took any time.
    """
    run_ids = [run.run_id for _, run, _ in chosen.runs]
    seconds = load_step_seconds(ask, run_ids)
    operations = load_operations(ask, run_ids)
    tables = make_tables([operations.get(run_id, ()) for run_id in run_ids])
    if not tables:
        raise GpuAgentError("the traces contain no operation that took any time")
    runs = [run for _, run, _ in chosen.runs]
    return Study(
        sides=tuple(
            Side(name=name, run=run, runs=number, step_seconds=seconds.get(run.run_id, {}))
            for name, run, number in chosen.runs
        ),
        tables=tables,
        differing=_find_differences(chosen),
        differing_settings=_differing_settings(runs),
        other_settings=chosen.other_settings,
        parts=tuple(load_part_times(ask, name, run, chosen.facts, each) for name, run, _ in chosen.runs)
        if each
        else (),
    )


def _differing_settings(runs: Sequence[Run]) -> tuple[str, ...]:
    settings = [{"workload": run.workload, **json.loads(run.parameters)} for run in runs]
    names = dict.fromkeys(name for each in settings for name in each)
    return tuple(name for name in names if any(each.get(name) != settings[0].get(name) for each in settings))


def _find_differences(chosen: Chosen) -> tuple[SpecRow, ...]:
    """Return the properties in which two runs differ: these may explain different kernels."""
    if len(chosen.runs) < 2:
        return ()
    cells = tuple(Cell(side=name, runs=(run,), others={}) for name, run, _ in chosen.runs)
    block = Block(workload=chosen.runs[0][1].workload, parameters={}, held={}, cells=cells)
    # No property has this facet's name, so none is left out as the compared one.
    facet = Facet(name="run", plural="runs", expression="run.run_id")
    layout = Layout(facet=facet, sides=tuple(cell.side for cell in cells), blocks=(block,), left_out=())
    return tuple(row for row in spec_rows(layout, chosen.facts) if row.differs)


def find_caveats(study: Study) -> tuple[Caveat, ...]:
    """Return every warning that applies."""
    return tuple(caveat for check in CHECKS for caveat in check(study))


def _other_work(study: Study) -> Iterator[Caveat]:
    if study.differing_settings:
        yield Caveat(
            code="settings_differ",
            text=f"the two runs had different settings: {', '.join(study.differing_settings)}",
            remedy="compare runs of the same workload with the same parameters",
        )


def _one_run(study: Study) -> Iterator[Caveat]:
    if len(study.sides) > 1:
        yield Caveat(
            code="one_run",
            text="these are a few steps of one run a side: they do not show whether the sides differ by more "
            "than chance",
            remedy="repeat both, and compare the repeats (docs/comparing.md)",
        )


def _one_sided(study: Study) -> Iterator[Caveat]:
    titles = [table.lane.title for table in study.tables if None in table.totals]
    if titles:
        yield Caveat(
            code="one_sided",
            text=f"only one side has: {'; '.join(titles)}",
            remedy="run both with `--profile`, or both without, on GPUs or both on CPUs",
        )


def _others(study: Study) -> Iterator[Caveat]:
    if any(row.unsure and row.only_on is not None for table in study.tables for row in table.rows):
        yield Caveat(
            code="not_listed",
            text="a run lists the 100 longest operations of each kind; one that is missing on a side may be "
            "among the rest",
            remedy="check its time on the other side: on this one it is shorter than all that are listed",
        )


def _more_settings(study: Study) -> Iterator[Caveat]:
    if study.other_settings:
        sets = f"{counted(study.other_settings, 'other set')} of settings"
        yield Caveat(
            code="other_settings",
            text=f"traced runs with {sets} are not shown",
            remedy="narrow with --workload and --experiment, or name the runs themselves",
        )


# Every check, in the order in which warnings are shown.
CHECKS: tuple[Callable[[Study], Iterator[Caveat]], ...] = (_other_work, _one_run, _one_sided, _others, _more_settings)


# The tables have the other operations.
_SPOKEN = 3
# One run a side cannot separate smaller differences, as shares of the time, from chance.
_ALIKE_SHARE = 0.01

# Full name of an operation → its short name.
Names = Mapping[str, str]


def answer(study: Study) -> str:
    """Return the difference between two steps and its parts, or the longest operations of one."""
    spoken = _spoken(study)
    names = short_names(row.name for table in spoken for row in table.rows)
    rows = sorted((row for table in spoken for row in table.rows), key=lambda row: -abs(row.seconds))[:_SPOKEN]
    totals = [sum(table.totals[side] or 0.0 for table in spoken) for side in range(len(study.sides))]
    where = "on the GPU" if spoken[0].lane in (KERNELS, COPIES) else "in operators"
    if len(study.sides) == 1:
        return " ".join([_longest(rows, sum(totals), where, names), *_steps(study)])
    return " ".join([_difference(study, rows, totals, where, names), *_alone(study), *_steps(study)])


def exclusive(table: LaneTimes) -> list[Row]:
    """Return the operations that only one of two sides has; none where a side has no data."""
    if None in table.totals:
        return []
    return [row for row in table.rows if row.only_on is not None and row.name != OTHERS]


def _spoken(study: Study) -> list[LaneTimes]:
    """Return the GPU's tables with all sides, else any table with all sides, else any."""
    shared = [table for table in study.tables if None not in table.totals]
    on_gpu = [table for table in shared if table.lane in (KERNELS, COPIES)]
    return on_gpu or shared[:1] or list(study.tables[:1])


def _longest(rows: Sequence[Row], total: float, where: str, names: Names) -> str:
    listed = "; ".join(
        f"{_time(row.seconds)} ({significant(100 * row.seconds / total)} %) in {_name_of(row, names)}" for row in rows
    )
    return f"A step takes {_time(total)} {where}: {listed}."


def _difference(study: Study, rows: Sequence[Row], totals: Sequence[float], where: str, names: Names) -> str:
    first, second = (side.name for side in study.sides)
    if not all(totals):
        absent = first if not totals[0] else second
        return f"{absent} has no data {where}, so there is nothing to compare."
    difference = totals[1] - totals[0]
    scale = notation(totals, "seconds")
    both = f"{scale.write_bare(totals[1])} and {scale.write(totals[0])}"
    if abs(difference) < _ALIKE_SHARE * max(totals):
        how = f"as long {where} as one of {first}, to within {significant(100 * _ALIKE_SHARE)} % ({both})"
    else:
        how = f"{_time(abs(difference))} {'longer' if difference > 0 else 'less'} {where} than one of {first} ({both})"
    parts = [_contribution(row, study, names) for row in rows if abs(row.seconds) >= _ALIKE_SHARE * max(totals)]
    return f"A step of {second} takes {how}{': ' if parts else ''}{'; '.join(parts)}."


def _contribution(row: Row, study: Study, names: Names) -> str:
    text = f"{_time(abs(row.seconds))} {'more' if row.seconds > 0 else 'less'} in {_name_of(row, names)}"
    if row.only_on is None or row.name == OTHERS:
        return text
    other = study.sides[1 - row.only_on].name
    if row.unsure:
        return f"{text}, not among those listed of {other}"
    return f"{text}, which {other} does not {'launch' if row.kind == 'kernel' else 'have'}"


def _alone(study: Study) -> Iterator[str]:
    """Yield the number of kernels that only one side launched."""
    kernels = next((table for table in study.tables if table.lane is KERNELS and None not in table.totals), None)
    if kernels is None:
        return
    alone = exclusive(kernels)
    if not alone:
        yield "Both launch the same kernels."
        return
    of_sides = ((side.name, [row for row in alone if row.only_on == index]) for index, side in enumerate(study.sides))
    listed = [
        f"{len(rows)} launched by {name} alone ({_time(sum(abs(row.seconds) for row in rows))} a step)"
        for name, rows in of_sides
        if rows
    ]
    yield f"{'Listed kernels' if any(row.unsure for row in alone) else 'Kernels'}: {', '.join(listed)}."


def _steps(study: Study) -> Iterator[str]:
    """Yield the busy and idle time of the GPU in a step of each side."""
    texts = []
    for side in study.sides:
        busy = side.step_seconds.get("gpu_busy_seconds_per_step")
        gap = side.step_seconds.get("gpu_gap_seconds_per_step")
        if busy is not None and gap is not None:
            scale = notation([busy, gap], "seconds")
            of_side = f" of {side.name}" if len(study.sides) > 1 else ""
            texts.append(
                f"busy for {scale.write_bare(busy)} and idle for {scale.write(gap)} of a measured step{of_side}"
            )
    if texts:
        yield f"The GPU was {'; '.join(texts)}."


def _name_of(row: Row, names: Names) -> str:
    return f"{row.kind}s without a row of their own" if row.name == OTHERS else names[row.name]


def _time(seconds: float) -> str:
    return notation([seconds], "seconds").write(seconds)


def answer_profile(ask: Ask, *, top: int, **asked: Any) -> Answer:
    """Answer the command; `asked` as for `study_profile`."""
    if not asked["by"] and (asked["workload"] or asked["experiment"]):
        raise MisuseError("--workload and --experiment need --by; leave them out for named runs")
    return render(study_profile(ask, **asked), top=top)


def render(study: Study, *, top: int) -> Answer:
    """Return the answer; CSV has a line for each operation. A terminal shows at most `top` of them in each table."""
    names = [side.name if len(study.sides) > 1 else side.run.run_id for side in study.sides]
    tables = [_data(lane) for lane in study.tables]
    return Answer(
        heading=f"Profile: {' · '.join(names)}",
        text=answer(study),
        parts=[Table(_SIDES, study.sides), _LEGEND],
        sections=[
            *_differences(study),
            *_only_on_one_side(study, top),
            *(_operations(lane, study, top) for lane in study.tables),
            *(_part_section(times, study, top) for times in study.parts),
        ],
        caveats=find_caveats(study),
        facts={
            "parts": study.parts,
            "sides": [_side(side) for side in study.sides],
            "differing": {row.title: row.values for row in study.differing},
            "tables": {
                lane.lane.name: {
                    "total_seconds": lane.totals,
                    "difference_seconds": lane.difference,
                    "operations": table,
                }
                for lane, table in zip(study.tables, tables, strict=True)
            },
        },
        csv=tables,
        sides=names,
    )


# The sides in names of columns.
_LETTERS = "ab"


def _data(lane: LaneTimes) -> Table:
    """Return the table of all operations that JSON and CSV have."""
    columns = [Column("kind"), Column("name")]
    for at, letter in enumerate(_LETTERS[: len(lane.totals)]):
        columns += [
            Column(f"{letter}_{name}", value=f"amounts.{at}.{name}") for name in ("seconds", "share_percent", "calls")
        ]
    if len(lane.totals) > 1:
        columns.append(Column("difference_seconds", value="seconds"))
        columns.append(Column("only_on", value=lambda row: None if row.only_on is None else _LETTERS[row.only_on]))
    return Table(columns, lane.rows, about={"table": lane.lane.name})


def _part_section(times: PartTimes, study: Study, top: int) -> Section:
    """Return the longest operations with their time and share on each part of a side."""
    whose = f" of {times.side}" if len(study.sides) > 1 else ""
    what = "Kernels and copies" if times.on_gpu else "Operators on the host"
    if not times.seconds:
        return Section(f"{what} by part{whose}", ["The trace does not tell the parts of this run apart."])
    names = short_names(times.operations)
    totals = {part: sum(seconds.values()) for part, seconds in times.seconds.items()}
    scale = notation(list(totals.values()), "seconds")

    def cell(part: str, row: Mapping[str, str]) -> str | None:
        seconds = times.seconds[part].get(row["name"])
        if seconds is None:
            return None
        return f"{scale.write_bare(seconds)} ({significant(100 * seconds / totals[part])} %)"

    columns = [Column(None, "", lambda row: names[row["name"]], left=True)]
    columns += [Column(None, part, partial(cell, part)) for part in totals]
    rows = [{"name": name} for name in times.operations]
    foot = ("all", *map(scale.write_bare, totals.values()))
    heading = f"{what} by part{whose}, {scale.symbol} a step (share)"
    return Section(heading, [Table(columns, rows, foot=[foot], keys=1, most=top)])


_LEGEND = (
    "Times and calls are means over the traced steps and the ranks, all calls of a name added up; shares are of the "
    "side's time in a table."
)


def _describe(side: Side) -> str:
    run = side.run
    median = f"; the median of {side.runs} runs by throughput" if side.runs > 1 else ""
    place = ", ".join(filter(None, (run.environment, run.platform, run.nodes)))
    return f"{run.workload}{f': {place}' if place else ''}{median}"


_SIDES = (
    Column(None, "", "name", left=True),
    Column(None, "run", "run.run_id", left=True),
    Column(None, "what", _describe, left=True),
    Column(None, "GPU", lambda side: side.run.device or "no GPU known", left=True),
)


def _differences(study: Study) -> Iterator[Section]:
    if study.differing:
        columns = [Column(None, "", "title", left=True)]
        columns += [Column(None, side.name, f"values.{at}", left=True) for at, side in enumerate(study.sides)]
        yield Section("Differences that may explain different kernels", [Table(columns, study.differing)])


def _only_on_one_side(study: Study, top: int) -> Iterator[Section]:
    kernels = next((table for table in study.tables if table.lane is KERNELS), None)
    alone = exclusive(kernels) if kernels else []
    if not alone:
        return
    names = short_names(row.name for row in alone)
    scale = notation([row.seconds for row in alone], "seconds")
    columns = (
        Column(None, "launched by", lambda row: study.sides[row.only_on or 0].name, left=True),
        Column(None, "kernel", lambda row: names[row.name], left=True),
        Column(None, "calls", lambda row: _calls(row.amounts)),
        Column(None, "a step", lambda row: scale.write(abs(row.seconds))),
    )
    yield Section("Kernels that only one side launched", [Table(columns, alone, most=top, more=partial(_more, scale))])


def _operations(lane: LaneTimes, study: Study, top: int) -> Section:
    names = short_names(row.name for row in lane.rows)
    scale = notation([amount.seconds for row in lane.rows for amount in row.amounts if amount], "seconds")
    columns = [Column(None, "", lambda row: _called_shown(row, names), left=True)]
    for at, side in enumerate(study.sides):
        columns.append(Column(None, side.name, f"amounts.{at}.seconds", show=scale.write_bare))
    total = [ABSENT if seconds is None else scale.write_bare(seconds) for seconds in lane.totals]
    if len(study.sides) > 1:
        title = f"{study.sides[1].name} − {study.sides[0].name}"
        columns.append(Column(None, title, "seconds", show=scale.write_difference))
        total.append(ABSENT if lane.difference is None else scale.write_difference(lane.difference))
    columns += [Column(None, "share", _shares), Column(None, "calls", lambda row: _calls(row.amounts))]
    foot = (f"all {len(lane.rows)}", *total)
    table = Table(columns, lane.rows, foot=[foot], most=top, more=partial(_more, scale))
    return Section(f"{lane.lane.title}, {scale.symbol} a step", [table])


def _called_shown(row: Row, names: Mapping[str, str]) -> str:
    return "(others: without a row of their own)" if row.name == OTHERS else names[row.name]


def _shares(row: Row) -> str:
    shares = [significant(amount.share_percent, 2) if amount else ABSENT for amount in row.amounts]
    return f"{' / '.join(shares)} %"


def _calls(amounts: Sequence[Amount | None]) -> str:
    return " / ".join(significant(amount.calls) if amount else ABSENT for amount in amounts)


def _more(scale: Notation, rest: Sequence[Row]) -> str:
    """Return the number of rows that are not shown."""
    return f"{len(rest)} more, none above {scale.write(abs(rest[0].seconds))}; --top shows them."


def _side(side: Side) -> dict[str, Any]:
    run = side.run
    names = ("workload", "platform", "environment", "image", "interference", "limits")
    return {
        "name": side.name,
        "run_id": run.run_id,
        "median_of": side.runs,
        **{name: getattr(run, name) for name in names},
        "nodes": run.nodes,
        "devices": run.device,
        "parameters": json.loads(run.parameters),
        **side.step_seconds,
    }
