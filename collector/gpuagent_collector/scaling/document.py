"""A study of scaling as a document of paragraphs and tables, for the terminal and for Markdown."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from gpuagent_collector.output.document import Caveat, Grid, Paragraph, Section, caveat_sections
from gpuagent_collector.output.human import notation, ratio, significant
from gpuagent_collector.output.values import ABSENT
from gpuagent_collector.runs.words import statuses
from gpuagent_collector.scaling.answer import answer
from gpuagent_collector.scaling.curves import Row
from gpuagent_collector.scaling.figures import MEASURES, CurveFigures, Measure, RowFigures
from gpuagent_collector.scaling.names import KINDS, ranks_of, settings_of, tell_apart
from gpuagent_collector.scaling.study import Study
from gpuagent_collector.scaling.trials import Held

# A row lists no more places than these.
_MOST_PLACES = 2


def build_document(study: Study, caveats: Sequence[Caveat], *, wide: bool) -> list[Section]:
    """Return the document; `wide` adds columns for which a narrow terminal has no room."""
    workloads = dict.fromkeys(figures.curve.settings.workload for figures in study.curves)
    return [
        Section(heading=f"Scaling: {' · '.join(workloads)}", parts=(Paragraph(text=answer(study, len(caveats))),)),
        *(_curve(figures, study, wide) for figures in study.curves),
        *caveat_sections(caveats),
    ]


def _curve(figures: CurveFigures, study: Study, wide: bool) -> Section:
    return Section(
        heading=f"{tell_apart(figures.curve, study.curves)}: {KINDS[figures.curve.settings.held]}",
        parts=(
            Paragraph(text=f"{_WHAT_IS_HELD[figures.curve.settings.held]} All runs agree in {_agreed(figures)}."),
            _speed_ups(figures, wide),
            _details(figures),
            *_efficiencies(figures, study.measures),
            Paragraph(text=_legend(figures, wide)),
        ),
    )


_WHAT_IS_HELD = {
    Held.RANK_BATCH: "The batch of each rank stays the same, so more ranks take more samples a step.",
    Held.TOTAL_SAMPLES: "The batch of each rank and all samples of the run stay the same, so more ranks take "
    "fewer steps; as a rate, this is weak scaling.",
    Held.GLOBAL_BATCH: "The batch of all ranks together stays the same, so each of more ranks has less to do.",
    Held.UNKNOWN: "The workload has no batch size, so it is unknown whether more ranks had more to do.",
}


def _agreed(figures: CurveFigures) -> str:
    settings = settings_of(figures.curve).items()
    return ", ".join(f"{name} {value}" for name, value in settings if name != "workload" and value != "none")


def _speed_ups(figures: CurveFigures, wide: bool) -> Grid:
    header = ("ranks", "GPUs", "runs", "throughput", "speed-up [95 %]", "efficiency", "comm.")
    baseline = figures.curve.baseline
    return Grid(header=header, rows=tuple(_speed_up_row(row, baseline, wide) for row in figures.rows), figures_from=0)


def _speed_up_row(row: RowFigures, baseline: Row, wide: bool) -> tuple[str, ...]:
    is_baseline = row.row is baseline
    return (
        _ranks(row.row),
        _measure(row, "gpus"),
        str(len(row.row.trials)),
        _throughput(row, wide),
        "1" if is_baseline else _speed_up(row),
        "100 %" if is_baseline else _efficiency(row, wide),
        _measure(row, "communication_percent"),
    )


def _ranks(row: Row) -> str:
    return f"{row.ranks} on {row.nodes} nodes" if row.nodes > 1 else str(row.ranks)


def _throughput(row: RowFigures, wide: bool) -> str:
    if row.throughput is None:
        return ABSENT
    rate = notation([row.throughput], "items/s")
    within = f" {_interval(row.low, row.high, rate.write_bare)}" if wide else ""
    return f"{rate.write(row.throughput)}{within}"


def _speed_up(row: RowFigures) -> str:
    shift = row.speed_up
    return f"{ratio(shift.estimate)} {_interval(shift.low, shift.high, ratio)}" if shift else ABSENT


def _efficiency(row: RowFigures, wide: bool) -> str:
    shift = row.efficiency
    if shift is None:
        return ABSENT
    within = f" {_interval(shift.low, shift.high, _percent)}" if wide else ""
    return f"{_percent(shift.estimate)} %{within}"


def _interval(low: float | None, high: float | None, write: Callable[[float], str]) -> str:
    return f"[{ABSENT}]" if low is None or high is None else f"[{write(low)}, {write(high)}]"


def _percent(share: float) -> str:
    return significant(100 * share)


def _details(figures: CurveFigures) -> Grid:
    header = ("ranks", "where", "step", "exposed", "other runs")
    measures = ("step_seconds", "exposed_communication_percent")
    rows = tuple(
        (
            _ranks(row.row),
            _places(row.row),
            *(_measure(row, name) for name in measures),
            statuses(Counter(trial.standing for trial in row.row.others)) or ABSENT,
        )
        for row in figures.rows
    )
    return Grid(header=header, rows=rows, figures_from=2)


def _efficiencies(figures: CurveFigures, measures: Sequence[Measure]) -> Iterator[Grid]:
    """Yield the table of useful output by input, with the known inputs."""
    inputs = {measure: _input(measure.unit) for measure in measures if measure.name.startswith("items_per_")}
    known = {
        measure: title for measure, title in inputs.items() if any(measure.name in row.measures for row in figures.rows)
    }
    if known:
        baseline = next(row for row in figures.rows if row.row is figures.curve.baseline)
        rows = tuple(
            (_ranks(row.row), *(_efficiency_by(measure, row, baseline) for measure in known)) for row in figures.rows
        )
        yield Grid(header=("ranks", *known.values()), rows=rows, figures_from=0)


def _input(unit: str) -> str:
    """Return the title of an efficiency. Items a second of each GPU are also those of a GPU-second."""
    return f"items by {({'items/s': 'GPU-second', 'items/J': 'joule'}).get(unit, unit.rpartition('/')[2])}"


def _efficiency_by(measure: Measure, row: RowFigures, baseline: RowFigures) -> str:
    """Return it, and in percent of that of the fewest ranks."""
    value, reference = row.measures.get(measure.name), baseline.measures.get(measure.name)
    if value is None:
        return ABSENT
    return significant(value) + (f" ({_percent(value / reference)} %)" if reference and row is not baseline else "")


def _measure(row: RowFigures, name: str) -> str:
    value = row.measures.get(name)
    return ABSENT if value is None else notation([value], _UNITS[name]).write(value)


_UNITS = {measure.name: measure.unit for measure in MEASURES}


def _places(row: Row) -> str:
    """Return the nodes and GPUs of the row's runs: spruce: 2 × NVIDIA L4."""
    runs = [trial.run for trial in row.trials]
    places = sorted({f"{run.nodes or 'unknown node'}: {run.device or 'no GPU known'}" for run in runs})
    listed = "; ".join(places[:_MOST_PLACES]) or ABSENT
    return listed if len(places) <= _MOST_PLACES else f"{listed}; … ({len(places)} in all)"


def _legend(figures: CurveFigures, wide: bool) -> str:
    sentences = [
        f"Medians over runs. Speed-up: the throughput against that on {ranks_of([figures.curve.baseline.ranks])} "
        "(Hodges-Lehmann); efficiency: that by the ratio of ranks. None of it is tested."
    ]
    if any(_is_unbounded(row, wide) for row in figures.rows):
        sentences.append("[–]: too few runs for an interval.")
    if any("communication_percent" in row.measures for row in figures.rows):
        sentences.append(
            "comm.: communication, share of kernel time; exposed: communication that nothing hides, share of all time."
        )
    if any("items_per_gpu_second" in row.measures for row in figures.rows):
        sentences.append("Items by input, and in percent of the fewest ranks; joules: of the GPUs alone.")
    return " ".join(sentences)


def _is_unbounded(row: RowFigures, wide: bool) -> bool:
    """Return whether a shown interval is absent."""
    has_no_interval = wide and row.throughput is not None and row.low is None
    return has_no_interval or (row.speed_up is not None and row.speed_up.low is None)
