"""The points that `collectives` measured: time and bandwidth of each operation by size, and of each pair of ranks."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gpuagent_collector.output.document import Grid, Paragraph, Section
from gpuagent_collector.output.human import notation
from gpuagent_collector.output.values import ABSENT
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


_Key = tuple[str, tuple[int, int] | None, int | None, int]


def load_points(ask: Ask, run_ids: Sequence[str]) -> tuple[Point, ...]:
    """Return the points of runs, by operation in the order of their reports, then by ranks and size."""
    rows = ask(_RESULTS, [list(run_ids)])
    ranks = {row["run_id"]: int(row["value"]) for row in rows if row["name"] == "ranks"}
    found: dict[_Key, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if match := _NAME.fullmatch(row["name"]):
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


def is_point(name: str) -> bool:
    """Return whether a result belongs to a point."""
    return _NAME.fullmatch(name) is not None


def links_sections(points: Sequence[Point]) -> list[Section]:
    """Return a table of the operations, and one of the pairs for each size."""
    whole = [point for point in points if point.pair is None]
    sections = []
    if whole:
        rows = tuple(
            (
                point.operation,
                ABSENT if point.ranks is None else str(point.ranks),
                size_text(point.size_bytes),
                _write(point.seconds, "seconds"),
                _write(point.algorithm_bytes_per_second, "bytes/s"),
                _write(point.bus_bytes_per_second, "bytes/s"),
                str(max(map(len, (point.seconds, point.algorithm_bytes_per_second, point.bus_bytes_per_second)))),
            )
            for point in whole
        )
        header = ("operation", "ranks", "size", "time", "algorithm bandwidth", "bus bandwidth", "runs")
        note = "Medians over runs. Algorithm bandwidth: size / time; bus bandwidth: as nccl-tests defines it."
        grid = Grid(header=header, rows=rows, figures_from=1)
        sections.append(Section(heading="Collectives", parts=(grid, Paragraph(text=note))))
    by_size: dict[tuple[int | None, int], list[Point]] = defaultdict(list)
    for point in points:
        if point.pair is not None and point.bus_bytes_per_second:
            by_size[point.ranks, point.size_bytes].append(point)
    sections += [_pairs_section(of_size) for of_size in by_size.values()]
    return sections


def _pairs_section(points: Sequence[Point]) -> Section:
    """Return a square table of a size's pairs."""
    rates = {point.pair: median(point.bus_bytes_per_second) for point in points}
    ranks = sorted({rank for pair in rates if pair for rank in pair})
    scale = notation(list(rates.values()), "bytes/s")
    rows = tuple(
        (
            str(rank),
            *(
                scale.write_bare(rate) if (rate := rates.get((min(rank, other), max(rank, other)))) else ABSENT
                for other in ranks
            ),
        )
        for rank in ranks
    )
    heading = f"Pairs of ranks, {size_text(points[0].size_bytes)} in each direction, {scale.symbol}"
    return Section(heading=heading, parts=(Grid(header=("rank", *map(str, ranks)), rows=rows, figures_from=1),))


def _write(values: Sequence[float], unit: str) -> str:
    return notation([median(values)], unit).write(median(values)) if values else ABSENT


_NAME = re.compile(
    r"(?:pair_(?P<first>[0-9]+)_(?P<second>[0-9]+)|(?P<operation>(?!pairs_)[a-z_]+))_(?P<bytes>[0-9]+)_bytes_"
    r"(?P<figure>seconds|algorithm_bytes_per_second|bus_bytes_per_second)"
)

_RESULTS = """
SELECT run_id, name, arg_max(value, time) AS value, min(time) AS first FROM results
WHERE (name = 'ranks' OR regexp_matches(name, '_[0-9]+_bytes_(seconds|(algorithm|bus)_bytes_per_second)$'))
    AND value IS NOT NULL AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
GROUP BY run_id, name ORDER BY first, name, run_id"""
