"""`collector scaling`: how throughput grows with the number of ranks."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gpuagent_collector.answers.scaling_curves import (
    KINDS,
    MEASURES,
    CurveFigures,
    Held,
    Measure,
    Row,
    RowFigures,
    Study,
    ranks_of,
    settings_of,
    study_scaling,
    tell_apart,
)
from gpuagent_collector.compare.caveats import find_disturbances
from gpuagent_collector.present.answer import Answer, Caveat, Section, in_short
from gpuagent_collector.present.human import in_unit, notation, ratio, significant
from gpuagent_collector.present.table import MOST_ROWS, Column, Table
from gpuagent_collector.present.values import ABSENT
from gpuagent_collector.prices.runs import why_unpriced
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import cancelled_caveat
from gpuagent_collector.runs.data import Run
from gpuagent_collector.runs.words import interval, name_file, percent, reasons, statuses, write_command
from gpuagent_collector.statistics.shift import least_runs
from gpuagent_common.text import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """A warning about the rows for which `concerns` is true; {} in its text is their numbers of ranks."""

    code: str
    concerns: Callable[[Row], bool]
    text: str
    remedy: str

    def __call__(self, study: Study) -> Iterator[Caveat]:
        ranks = [row.ranks for row in _rows(study) if self.concerns(row)]
        if ranks:
            yield Caveat(code=self.code, text=self.text.format(ranks_of(ranks)), remedy=self.remedy)


def find_caveats(study: Study) -> tuple[Caveat, ...]:
    """Return every warning that applies."""
    return tuple(caveat for check in CHECKS for caveat in check(study))


def _rows(study: Study) -> list[Row]:
    return [row.row for figures in study.curves for row in figures.rows]


def _disturbed(study: Study) -> Iterator[Caveat]:
    """Yield the warnings of what disturbed runs, by their numbers of ranks."""
    sides: dict[str, dict[str, Run]] = defaultdict(dict)
    for row in _rows(study):
        sides[ranks_of([row.ranks])].update({trial.run.run_id: trial.run for trial in row.trials})
    yield from find_disturbances({side: list(runs.values()) for side, runs in sides.items() if runs}, study.facts)


def _few_runs(study: Study) -> Iterator[Caveat]:
    rows = [row for each in study.curves for row in each.rows if row.speed_up and row.speed_up.low is None]
    if rows:
        yield Caveat(
            code="few_runs",
            text="too few runs for a confidence interval on the speed-up with "
            + ranks_of(row.row.ranks for row in rows),
            remedy=f"repeat with at least {least_runs(1)} runs of each number of ranks (7 is a good number)",
        )


def _more_than_linear(study: Study) -> Iterator[Caveat]:
    every = [row for each in study.curves for row in each.rows]
    rows = [row for row in every if row.efficiency and row.efficiency.low and row.efficiency.low > 1]
    if rows:
        yield Caveat(
            code="more_than_linear",
            text=f"an efficiency above 100 % with {ranks_of(row.row.ranks for row in rows)}: something else than the "
            "ranks differs, such as free cores, or a batch that fits a cache",
            remedy="make the runs in turns on a quiet node, with the same batch of each rank",
        )


def _one_node(study: Study) -> Iterator[Caveat]:
    nodes = frozenset().union(*(trial.nodes for row in _rows(study) for trial in row.trials))
    if len(nodes) == 1:
        yield Caveat(
            code="one_node",
            text=f"all runs are from one node ({next(iter(nodes))}): they say nothing about other nodes",
            remedy="repeat on other nodes of the same kind",
        )


def _no_single_rank(study: Study) -> Iterator[Caveat]:
    fewest = [each.curve.baseline.ranks for each in study.curves if each.curve.baseline.ranks > 1]
    if fewest:
        yield Caveat(
            code="no_single_rank",
            text=f"without a run on 1 rank the speed-up is against {ranks_of(fewest)}: "
            "it does not include the cost of going from one to several",
            remedy="run the same on 1 rank",
        )


def _mixed_gpus(study: Study) -> Iterator[Caveat]:
    for models in sorted({each.curve.gpus for each in study.curves if each.curve.gpus and ", " in each.curve.gpus}):
        yield Caveat(
            code="mixed_gpus",
            text=f"ranks of one run were on GPUs of different models ({models}): all wait for the slowest",
            remedy="give the ranks of a run equal GPUs",
        )


def _unsuccessful(study: Study) -> Iterator[Caveat]:
    others = {trial.run.run_id: trial for row in _rows(study) for trial in row.others}
    if others:
        counts = sorted(Counter((trial.ranks, trial.standing) for trial in others.values()).items())
        listed = ", ".join(
            f"{number} {standing.replace('_', ' ')} with {ranks_of([ranks])}" for (ranks, standing), number in counts
        )
        why = reasons(trial.run.status or "" for trial in others.values() if trial.run.status != "succeeded")
        yield Caveat(code="unsuccessful", text=f"runs that are in no figure: {listed}", remedy=f"reasons: {why}")


def _left_out(study: Study) -> Iterator[Caveat]:
    if study.cancelled:
        yield cancelled_caveat(str(len(study.cancelled)))
    if study.alone:
        names = sorted({trial.run.workload for trial in study.alone})
        yield Caveat(
            code="left_out",
            text=f"{counted(len(study.alone), 'run')} in no curve, as no other number of ranks ran alike: "
            + ", ".join(names),
            remedy="runs of a curve agree in all but their ranks: workload, place, GPU model, parameters",
        )
    if study.elastic:
        yield Caveat(
            code="elastic",
            text=f"{counted(len(study.elastic), 'run')} left out: ranks may come and go in elastic training",
            remedy="run with a fixed number of ranks to see how it scales",
        )


# Every check, in the order in which warnings are shown.
CHECKS: tuple[Callable[[Study], Iterator[Caveat]], ...] = (
    _disturbed,
    _few_runs,
    _more_than_linear,
    _Check(
        code="measure_short",
        concerns=lambda row: any(trial.is_short for trial in row.trials),
        text="runs with {} measured for less than 10 s: their rates depend much on chance",
        remedy="measure longer",
    ),
    _one_node,
    _no_single_rank,
    _mixed_gpus,
    _Check(
        code="shared_gpus",
        concerns=lambda row: any(one.gpus and one.metrics.get("gpus", one.ranks) < one.ranks for one in row.trials),
        text="more ranks than GPUs that are known to be used, with {}: ranks shared a GPU, or the run did not report "
        "which it used",
        remedy="give each rank a GPU of its own",
    ),
    _Check(
        code="on_cpu",
        concerns=lambda row: row.ranks > row.nodes and any(trial.gpus is None for trial in row.trials),
        text="no GPU is known to be used with {}: ranks on one node's CPU share its cores and its memory, which limits "
        "the gain of more ranks",
        remedy="read the efficiency as that of this node, or run on GPUs",
    ),
    _Check(
        code="mixed_placement",
        concerns=lambda row: len({len(trial.nodes) for trial in row.trials}) > 1,
        text="runs with {} were spread over different numbers of nodes",
        remedy="use one placement: communication between nodes is slower than within one",
    ),
    _unsuccessful,
    _left_out,
)


# The tables have the others.
_SPOKEN_CURVES = 3


def answer(study: Study, *, whole: bool = True) -> str:
    """Return the gain of each curve; of several, what takes the rest only on the `whole`."""
    unpriced = why_unpriced(study.facts)
    is_priced = {each.name for each in study.measures} > {each.name for each in MEASURES}
    money = [f"No cost{' of some runs' if is_priced else ''}: {unpriced}."] if unpriced else []
    return " ".join([*in_short(_sentences(study, whole=whole), most=_SPOKEN_CURVES), *money])


def _sentences(study: Study, *, whole: bool) -> list[str]:
    whole = whole or not study.curves[1:]
    return [_sentence(figures, study.curves, whole=whole) for figures in sorted(study.curves, key=_support)]


def _support(figures: CurveFigures) -> tuple[bool, int]:
    """Return the key of the order by evidence: what is shown first, then what has the most runs."""
    is_shown = any(row.speed_up and row.speed_up.is_shown for row in figures.rows)
    return not is_shown, -sum(len(row.row.trials) for row in figures.rows)


def _sentence(figures: CurveFigures, curves: Iterable[CurveFigures], *, whole: bool) -> str:
    """Return the gain of the most ranks with which one is shown, and what takes the rest."""
    baseline = figures.curve.baseline
    first = next(each for each in figures.rows if each.row is baseline)
    known = [(row, row.speed_up, row.efficiency) for row in figures.rows if row.speed_up and row.efficiency]
    shown = [one for one in known if one[1].is_shown]
    row, speed_up, efficiency = (shown or [one for one in known if one[1].low is not None] or known)[-1]
    name, fewest = tell_apart(figures.curve, curves), ranks_of([baseline.ranks])
    if speed_up.low is None:
        between = f"{ranks_of([row.row.ranks])} and {fewest} ({_evidence(row, first)})"
        return f"{name}: the runs are too few to show any difference in throughput between {between}."
    # Those of prices are made of them.
    money = ""
    for measure in (row.measures.keys() & first.measures.keys()).difference(each.name for each in MEASURES):
        before, after = (significant(each.measures[measure]) for each in (first, row))
        money += f", {after} items for one {measure.rpartition('_')[2].upper()} instead of {before}"
    if not speed_up.is_shown:
        # Its cost is that of the throughput, so no gain of it is shown either.
        above = "" if baseline.ranks == 1 else f" above {fewest}"
        shown_up_to = f"{name}: no speed-up{above} is shown up to {ranks_of([row.row.ranks])}"
        sentence = f"{shown_up_to} ({_evidence(row, first)})."
        return f"{sentence} {figures.straggler}".rstrip() if whole else sentence
    sentence = f"{name}: {ranks_of([row.row.ranks])} have {ratio(speed_up.estimate)} times the throughput of "
    sentence += f"{fewest} ({_evidence(row, first, with_factor=False)}), {percent(efficiency.estimate)} of linear"
    sentence += f"{money}."
    last = known[-1][0]
    if last is not row and last.speed_up and last.speed_up.low is not None:
        sentence += f" With {ranks_of([last.row.ranks])} none is shown ({_evidence(last, first)})."
    rest = [_because(row, first, efficiency.estimate), figures.straggler] if whole else []
    return " ".join(filter(None, [sentence, *rest]))


def _evidence(row: RowFigures, first: RowFigures, *, with_factor: bool = True) -> str:
    """Return the interval of a speed-up, and the runs behind it."""
    assert row.speed_up is not None  # noqa: S101 - a row with runs has one
    factor = f"ratio {ratio(row.speed_up.estimate)}, " if with_factor else ""
    runs = f"{row.pairs} pairs of" if row.pairs else f"{len(first.row.trials)} and {len(row.row.trials)}"
    return f"{factor}{interval(row.speed_up)}, {runs} runs"


# Less of the efficiency is not worth a cause.
_LEAST_LOSS = 0.05
_LOSSES = {
    "exposed_communication_percent": "communication that nothing hides",
    "data_wait_percent": "waiting for data",
}


def _because(row: RowFigures, first: RowFigures, efficiency: float) -> str:
    """Return what takes the efficiency that is lost, as shares of the time that add up; '' where that is unknown.

    A share of the fewest ranks' time is of so much more of that with more ranks as these are less efficient.
    """
    lost = 1 - efficiency
    parts = {}
    for name, title in _LOSSES.items():
        # One rank has nobody to communicate with.
        before = first.measures.get(name, 0.0 if first.row.ranks == 1 else None)
        if before is not None and name in row.measures:
            # What takes less time than before loses nothing.
            parts[title] = max(0.0, row.measures[name] - before * efficiency) / 100
    if lost < _LEAST_LOSS or not parts:
        return ""
    cause = max(parts, key=parts.__getitem__)
    others = {**parts, "all else": lost - sum(parts.values())}
    of_cause = others.pop(cause)
    listed = ", ".join(f"{title} {_in_percent(share)}" for title, share in others.items())
    takes = f"takes {_in_percent(of_cause)}"
    if of_cause > lost / 2:
        return f"Because {cause} {takes} of the {_in_percent(lost)} that is lost ({listed})."
    return f"Of the {_in_percent(lost)} that is lost, {cause} {takes} ({listed})."


def _in_percent(share: float) -> str:
    return f"{significant(100 * share, 2)} %"


# A row lists no more places than these.
_MOST_PLACES = 2


def answer_scaling(ask: Ask, **asked: Any) -> Answer:
    """Answer the command; `asked` as for `study_scaling`."""
    return render(study_scaling(ask, **asked))


def render(study: Study) -> Answer:
    """Return the answer; CSV has a line for each number of ranks of each curve."""
    caveats = find_caveats(study)
    tables = [_speed_ups([figures], study.measures, about=_curve_record(figures)) for figures in study.curves]
    both = list(zip(study.curves, tables, strict=True))
    workloads = " · ".join(dict.fromkeys(figures.curve.settings.workload for figures in study.curves))
    kinds = {KINDS[figures.curve.settings.held] for figures in study.curves}
    kind = kinds.pop() if len(kinds) == 1 else "scaling"
    ordered = sorted(study.curves, key=_support)
    more_runs = [figures.more_runs for figures in ordered if figures.more_runs]
    drawn = write_command(
        "plot", {"--workload": study.curves[0].curve.settings.workload, "-o": name_file("scaling.pdf")}, "scaling"
    )
    return Answer(
        heading=f"{kind[0].upper()}{kind[1:]}: {workloads}",
        text=answer(study),
        short=answer(study, whole=False),
        parts=[replace(_speed_ups(ordered, study.measures), most=MOST_ROWS)],
        sections=[_section(figures, study) for figures in study.curves],
        caveats=caveats,
        next=more_runs[0] if more_runs else drawn,
        more="where the ranks ran, work by GPU and joule, and how to read this",
        facts={
            "curves": [{**(table.about or {}), "rows": _with_runs(table, figures)} for figures, table in both],
            "left_out": [trial.run.run_id for trial in study.alone],
            "elastic": [run.run_id for run in study.elastic],
            "cancelled": [run.run_id for run in study.cancelled],
        },
        csv=tables,
    )


def _with_runs(table: Table, figures: CurveFigures) -> list[dict[str, Any]]:
    rows = []
    for record, row in zip(table.records(), figures.rows, strict=True):
        trials = row.row.trials
        runs = {
            "runs": [trial.run.run_id for trial in trials],
            "others": Counter(trial.standing for trial in row.row.others),
            "nodes": sorted({name for trial in trials for name in trial.nodes}),
            "devices": sorted({trial.run.device for trial in trials if trial.run.device}),
        }
        rows.append({**record, **runs})
    return rows


def _section(figures: CurveFigures, study: Study) -> Section:
    settings = settings_of(figures.curve).items()
    agreed = ", ".join(f"{name} {value}" for name, value in settings if name != "workload" and value != "none")
    held = figures.curve.settings.held
    details = (
        Column(None, "ranks", _ranks, left=True),
        Column(None, "where", lambda row: _places(row.row), left=True),
        _measure("step_seconds", "step"),
        _measure("exposed_communication_percent", "exposed"),
        Column(None, "other runs", lambda row: statuses(Counter(trial.standing for trial in row.row.others)) or ABSENT),
    )
    legend = [
        f"Medians over runs. Speed-up: the throughput against that on {ranks_of([figures.curve.baseline.ranks])} "
        "(Hodges-Lehmann), of pairs where an experiment made them; efficiency: that by the ratio of ranks. "
        "A verdict is that of the speed-up's own interval: differs, = (equal to within 2 %), ~ (neither is shown)."
    ]
    if any(row.speed_up and row.speed_up.low is None for row in figures.rows):
        legend.append("[–]: too few runs for an interval.")
    if any("communication_percent" in row.measures for row in figures.rows):
        legend.append(
            "comm.: communication, share of kernel time; exposed: communication that nothing hides, share of all time."
        )
    if any("items_per_gpu_second" in row.measures for row in figures.rows):
        legend.append("Items by input, and in percent of the fewest ranks; joules: of the GPUs alone.")
    return Section(
        f"{tell_apart(figures.curve, study.curves)}: {KINDS[held]}",
        [
            f"{_WHAT_IS_HELD[held]} All runs agree in {agreed}.",
            Table(details, figures.rows),
            *_efficiencies(figures, study.measures),
            " ".join(legend),
        ],
        is_detail=True,
    )


_WHAT_IS_HELD = {
    Held.RANK_BATCH: "The batch of each rank stays the same, so more ranks take more samples a step.",
    Held.TOTAL_SAMPLES: "The batch of each rank and all samples of the run stay the same, so more ranks take "
    "fewer steps; as a rate, this is weak scaling.",
    Held.GLOBAL_BATCH: "The batch of all ranks together stays the same, so each of more ranks has less to do.",
    Held.UNKNOWN: "The workload has no batch size, so it is unknown whether more ranks had more to do.",
}


def _speed_ups(
    curves: Sequence[CurveFigures], measures: Sequence[Measure], about: Mapping[str, Any] | None = None
) -> Table:
    """Return a row for each number of ranks; of several curves with the curve's name."""
    units = {id(row): figures.unit for figures in curves for row in figures.rows}
    kinds = {figures.curve.settings.held for figures in curves}
    names: dict[int, str] = {}
    for figures in curves:
        kind = f", {KINDS[figures.curve.settings.held]}" if len(kinds) > 1 else ""
        names |= {id(row): f"{tell_apart(figures.curve, curves)}{kind}" for row in figures.rows}
    baselines = [figures.curve.baseline for figures in curves]

    def throughput(row: RowFigures, within: bool) -> str | None:
        if row.throughput is None:
            return None
        rate = notation([row.throughput], units[id(row)])
        bounds = f" {_interval(row.low, row.high, rate.write_bare)}" if within and row.low is not None else ""
        return f"{rate.write(row.throughput)}{bounds}"

    def speed_up(row: RowFigures) -> str | None:
        shift = row.speed_up
        if row.row in baselines:
            return "1"
        return f"{ratio(shift.estimate)} {_interval(shift.low, shift.high, ratio)}" if shift else None

    def efficiency(row: RowFigures, within: bool) -> str | None:
        shift = row.efficiency
        if row.row in baselines:
            return "100 %"
        if shift is None:
            return None
        bounds = f" {_interval(shift.low, shift.high, _percent)}" if within else ""
        return f"{_percent(shift.estimate)} %{bounds}"

    named = [Column(None, "runs of", lambda row: names[id(row)], left=True)] if curves[1:] else []
    # With prices their column takes the place of the efficiency in a narrow terminal.
    priced = [
        Column(None, f"items by {_input(measure)}", f"measures.{measure.name}", show=significant)
        for measure in measures
        if measure not in MEASURES
    ]
    columns = (
        *named,
        Column(None, "ranks", _ranks),
        Column("ranks", value="row.ranks"),
        Column("node_count", value="row.nodes"),
        replace(_measure("gpus", "GPUs"), wide=True),
        Column("n", "runs", lambda row: len(row.row.trials)),
        Column("unsuccessful", value=lambda row: len(row.row.others)),
        Column("throughput"),
        Column(None, "throughput", partial(throughput, within=False), wide=False),
        Column(None, "throughput", partial(throughput, within=True), wide=True),
        Column("throughput_low", value="low"),
        Column("throughput_high", value="high"),
        *_shift("speed_up"),
        Column("pairs"),
        Column(None, "speed-up [95 %]", speed_up),
        Column("verdict", "verdict"),
        *_shift("efficiency"),
        *([] if priced else [Column(None, "efficiency", partial(efficiency, within=False), wide=False)]),
        Column(None, "efficiency", partial(efficiency, within=True), wide=True),
        _measure("communication_percent", "comm."),
        *(Column(measure.name, value=f"measures.{measure.name}") for measure in measures),
        *priced,
    )
    rows = [row for figures in curves for row in figures.rows]
    return Table(columns, rows, about=about)


def _shift(name: str) -> tuple[Column, ...]:
    ends = (Column(f"{name}_{end}", value=f"{name}.{end}") for end in ("low", "high"))
    return (Column(name, value=f"{name}.estimate"), *ends)


def _measure(name: str, title: str) -> Column:
    return Column(None, title, f"measures.{name}", show=in_unit(_UNITS[name]))


_UNITS = {measure.name: measure.unit for measure in MEASURES}


def _ranks(row: RowFigures) -> str:
    ranks, nodes = row.row.ranks, row.row.nodes
    return f"{ranks} on {nodes} nodes" if nodes > 1 else str(ranks)


def _interval(low: float | None, high: float | None, write: Callable[[float], str]) -> str:
    return f"[{ABSENT}]" if low is None or high is None else f"[{write(low)}, {write(high)}]"


def _percent(share: float) -> str:
    return significant(100 * share)


def _efficiencies(figures: CurveFigures, measures: Sequence[Measure]) -> Iterator[Table]:
    """Yield the table of useful output by input, with the known inputs, in percent of the fewest ranks."""
    baseline = next(row for row in figures.rows if row.row is figures.curve.baseline)

    def written(row: RowFigures, name: str) -> str | None:
        value, reference = row.measures.get(name), baseline.measures.get(name)
        if value is None:
            return None
        return significant(value) + (f" ({_percent(value / reference)} %)" if reference and row is not baseline else "")

    columns = [Column(None, "ranks", _ranks)]
    for measure in measures:
        if measure.name.startswith("items_per_") and any(measure.name in row.measures for row in figures.rows):
            columns.append(Column(None, f"items by {_input(measure)}", partial(written, name=measure.name)))
    if columns[1:]:
        yield Table(columns, figures.rows)


_INPUTS = {"items/s": "GPU-second", "items/J": "joule"}


def _input(measure: Measure) -> str:
    """Return what goes in, in words: items a second of each GPU are also those of a GPU-second."""
    return _INPUTS.get(measure.unit) or measure.unit.rpartition("/")[2]


def _places(row: Row) -> str:
    """Return the nodes and GPUs of the row's runs: spruce: 2 × NVIDIA L4."""
    runs = [trial.run for trial in row.trials]
    places = sorted({f"{run.nodes or 'unknown node'}: {run.device or 'no GPU known'}" for run in runs})
    listed = "; ".join(places[:_MOST_PLACES]) or ABSENT
    return listed if len(places) <= _MOST_PLACES else f"{listed}; … ({len(places)} in all)"


def _curve_record(figures: CurveFigures) -> dict[str, Any]:
    settings = figures.curve.settings
    names = ("workload", "platform", "environment", "image", "interference", "limits")
    return {
        **{name: getattr(settings, name) for name in names},
        "gpu": figures.curve.gpus,
        "parameters": json.loads(settings.parameters),
        "held": settings.held.value,
        "amounts": dict(settings.amounts),
        "baseline_ranks": figures.curve.baseline.ranks,
    }
