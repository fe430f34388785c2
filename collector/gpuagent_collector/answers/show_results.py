"""Tables of `collector show`: what `collectives` and `memory-limit` report."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from gpuagent_collector.present.answer import Section
from gpuagent_collector.present.human import in_unit, notation
from gpuagent_collector.present.table import Column, Table
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.reported import size_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """An operation at one size.

    Attributes:
        operation: all-reduce, …, or pair.
        pair: the two ranks of a pair; None: all ranks.
        ranks: of the run.
        seconds, algorithm_bytes_per_second, bus_bytes_per_second: of each run.
    """

    operation: str
    pair: tuple[int, int] | None
    ranks: int | None
    size_bytes: int
    seconds: tuple[float, ...]
    algorithm_bytes_per_second: tuple[float, ...]
    bus_bytes_per_second: tuple[float, ...]


_Series = tuple[str, tuple[int, int] | None, int | None, int]


def load_points(ask: Ask, run_ids: Sequence[str]) -> tuple[Point, ...]:
    """Return the points of runs, by operation in the order of their reports, then by ranks and size."""
    rows = ask(_LINK_RESULTS, [list(run_ids)])
    ranks = {row["run_id"]: int(row["value"]) for row in rows if row["name"] == "ranks"}
    found: dict[_Series, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if match := LINK.fullmatch(row["name"]):
            pair = (int(match["first"]), int(match["second"])) if match["first"] else None
            operation = "pair" if pair else match["operation"].replace("_", "-")
            key = (operation, pair, ranks.get(row["run_id"]), int(match["bytes"]))
            found[key][match["figure"]].append(row["value"])
    order = {operation: number for number, operation in enumerate(dict.fromkeys(key[0] for key in found))}
    return tuple(
        Point(
            operation=operation,
            pair=pair,
            ranks=number,
            size_bytes=size_bytes,
            seconds=tuple(figures["seconds"]),
            algorithm_bytes_per_second=tuple(figures["algorithm_bytes_per_second"]),
            bus_bytes_per_second=tuple(figures["bus_bytes_per_second"]),
        )
        for (operation, pair, number, size_bytes), figures in sorted(
            found.items(), key=lambda item: (order[item[0][0]], item[0][2] or 0, item[0][3], item[0][1] or ())
        )
    )


def links_sections(points: Sequence[Point]) -> Iterator[Section]:
    """Yield a table of the operations, and one of the pairs for each size."""
    whole = [point for point in points if point.pair is None]
    if whole:
        note = "Medians over runs. Algorithm bandwidth: size / time; bus bandwidth: as nccl-tests defines it."
        yield Section("Collectives", [Table(_COLLECTIVES, whole), note])
    by_size: dict[tuple[int | None, int], list[Point]] = defaultdict(list)
    for point in points:
        if point.pair is not None and point.bus_bytes_per_second:
            by_size[point.ranks, point.size_bytes].append(point)
    for of_size in by_size.values():
        yield _pairs_section(of_size)


def _pairs_section(points: Sequence[Point]) -> Section:
    rates = {point.pair: median(point.bus_bytes_per_second) for point in points}
    ranks = sorted({rank for pair in rates if pair for rank in pair})
    scale = notation(list(rates.values()), "bytes/s")

    def rate(other: int, rank: int) -> str | None:
        found = rates.get((min(rank, other), max(rank, other)))
        return scale.write_bare(found) if found else None

    columns = [Column(None, "rank", left=True), *(Column(None, str(other), partial(rate, other)) for other in ranks)]
    heading = f"Pairs of ranks, {size_text(points[0].size_bytes)} in each direction, {scale.symbol}"
    return Section(heading, [Table(columns, ranks)])


def _median(title: str, name: str, unit: str) -> Column:
    return Column(None, title, name, lambda values: in_unit(unit)(median(values)) if values else None)


_COLLECTIVES = (
    Column(None, "operation", "operation", left=True),
    Column(None, "ranks", "ranks"),
    Column(None, "size", "size_bytes", size_text),
    _median("time", "seconds", "seconds"),
    _median("algorithm bandwidth", "algorithm_bytes_per_second", "bytes/s"),
    _median("bus bandwidth", "bus_bytes_per_second", "bytes/s"),
    Column(
        None, "runs", lambda one: max(map(len, (one.seconds, one.algorithm_bytes_per_second, one.bus_bytes_per_second)))
    ),
)

LINK = re.compile(
    r"(?:pair_(?P<first>[0-9]+)_(?P<second>[0-9]+)|(?P<operation>(?!pairs_)[a-z_]+))_(?P<bytes>[0-9]+)_bytes_"
    r"(?P<figure>seconds|algorithm_bytes_per_second|bus_bytes_per_second)"
)

_LINK_RESULTS = """
SELECT run_id, name, arg_max(value, time) AS value, min(time) AS first FROM results
WHERE (name = 'ranks' OR regexp_matches(name, '_[0-9]+_bytes_(seconds|(algorithm|bus)_bytes_per_second)$'))
    AND value IS NOT NULL AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
GROUP BY run_id, name ORDER BY first, name, run_id"""


# Name, GPU, convolutions, linear layers, whether it fits.
_Trial = tuple[str, int | None, int, int, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A stack of layers, or the part of it on one GPU.

    Attributes:
        name: of the point, as the run reported it.
        gpu: index of the GPU that has this part; None: the whole stack.
        conv, fc: numbers of layers.
        fits: False: it is out of memory.
        step_seconds, peak_bytes: of the runs that report them.
    """

    name: str
    gpu: int | None
    conv: int
    fc: int
    fits: bool
    step_seconds: tuple[float, ...]
    peak_bytes: tuple[float, ...]
    runs: int


def load_stacks(ask: Ask, run_ids: Sequence[str]) -> tuple[Stack, ...]:
    """Return the stacks that runs report, each with its parts behind it; runs that agree in one are put together."""
    reported: dict[tuple[str, str, int | None], dict[str, float]] = defaultdict(dict)
    for row in ask(_STACK_RESULTS, [list(run_ids)]):
        if match := _STACK.fullmatch(row["name"]):
            gpu = None if match["gpu"] is None else int(match["gpu"])
            reported[row["run_id"], match["stack"], gpu][match["field"]] = row["value"]
    stacks: dict[_Trial, list[Mapping[str, float]]] = defaultdict(list)
    for (run_id, name, gpu), fields in reported.items():
        if {"conv_layers", "fc_layers"} <= fields.keys():
            whole = reported.get((run_id, name, None), {})
            fits = bool(whole.get("fits", 1))
            stacks[name, gpu, int(fields["conv_layers"]), int(fields["fc_layers"]), fits].append(fields)
    return tuple(
        Stack(
            name=name,
            gpu=gpu,
            conv=conv,
            fc=fc,
            fits=fits,
            step_seconds=_values(found, "step_seconds"),
            peak_bytes=_values(found, "peak_reserved_bytes"),
            runs=len(found),
        )
        for (name, gpu, conv, fc, fits), found in sorted(stacks.items(), key=lambda item: _order(item[0]))
    )


def stacks_section(stacks: Sequence[Stack]) -> Section:
    """Return the stacks as a table."""
    columns = (
        Column(None, "stack", _title, left=True),
        Column(None, "memory", _outcome, left=True),
        _median("step", "step_seconds", "seconds"),
        _median("GPU memory, peak", "peak_bytes", "bytes"),
        Column(None, "runs", "runs"),
    )
    note = "Medians over runs; convolutions and linear layers in training, forward and backward."
    return Section("Stacks of layers", [Table(columns, stacks), note])


def _title(stack: Stack) -> str:
    if stack.gpu is None:
        return f"{stack.conv} conv + {stack.fc} fc"
    return f"  GPU {stack.gpu}: {stack.conv} + {stack.fc}"


def _outcome(stack: Stack) -> str:
    if stack.gpu is not None:
        return ""
    if not stack.fits:
        return "out of memory"
    return "fits" if stack.name.startswith("point") else "largest that fits"


def _values(found: Iterable[Mapping[str, float]], field: str) -> tuple[float, ...]:
    return tuple(fields[field] for fields in found if field in fields)


def _order(key: _Trial) -> tuple[list[str | int], int, int, int, bool]:
    name, gpu, conv, fc, fits = key
    # Numbers in names count as numbers: 6 convolutions before 30.
    parts = [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
    return (parts, -1 if gpu is None else gpu, conv, fc, fits)


# Such as frontier_conv1_fc1_step_seconds, and of one GPU's part point_conv84_fc0_conv54_fc62_gpu0_conv_layers.
_STACK = re.compile(
    r"(?P<stack>(?:frontier|point|gpu\d+)_.+?)(?:_gpu(?P<gpu>\d+))?"
    r"_(?P<field>conv_layers|fc_layers|step_seconds|fits|peak_reserved_bytes)"
)

_STACK_RESULTS = """
SELECT run_id, name, arg_max(value, time) AS value FROM results
WHERE regexp_matches(name, '_(conv_layers|fc_layers|step_seconds|fits|peak_reserved_bytes)$')
    AND value IS NOT NULL AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
GROUP BY ALL ORDER BY ALL"""
