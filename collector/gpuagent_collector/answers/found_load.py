"""The highest loads within limits of latency that searches of `serve-load --find` found, by side."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuagent_collector.compare.matrix import Selection
from gpuagent_collector.metrics.result import SERVING
from gpuagent_collector.present.answer import Legend, Section
from gpuagent_collector.present.human import significant
from gpuagent_collector.present.table import Column, Table
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import Cell
from gpuagent_collector.runs.data import Facts
from gpuagent_collector.runs.repeating import find_recorded, write_parameters
from gpuagent_collector.statistics.summaries import median_interval

# What is searched for, with the unit of each.
UNITS = {"rate": "requests/s", "concurrency": "users", "scale": "× the trace"}

# The share of windows that contradict, above which a server is called erratic.
_ERRATIC = 0.2

# Windows of a longer search, at least.
_LONGER = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The highest load of a side.

    Attributes:
        kind: rate, concurrency or scale.
        limits: in words.
        run_ids, runs: the searches, and the number of those that found a load.
        highest: median over them.
        low, high: 95 % interval: the median's from six runs on, else all that the searches' own cover; None: open.
        erratic: share of the windows at the ends of the intervals that contradict them.
        figures: medians over the runs, of the load at the lower end.
    """

    side: str
    kind: str
    limits: str
    run_ids: tuple[str, ...]
    runs: int
    highest: float
    low: float | None
    high: float | None
    erratic: float
    figures: Mapping[str, float]


def find_loads(chosen: Selection, write_limits: Any) -> Iterator[Found]:
    """Yield what each side's searches found; `write_limits` writes the limits in the settings of a block."""
    for block in chosen.layout.blocks:
        kind = str(block.parameters.get("find"))
        for cell in block.cells:
            if kind in UNITS and chosen.facts.has(cell.runs, f"highest_{kind}"):
                yield _found(cell, kind, write_limits(block.settings), chosen.facts)


def _found(cell: Cell, kind: str, limits: str, facts: Facts) -> Found:
    values, lows, highs = (facts.values(cell.runs, f"highest_{kind}{end}") for end in ("", "_low", "_high"))
    low = min(lows) if len(lows) == len(values) else None
    high = max(highs) if len(highs) == len(values) else None
    if over_runs := median_interval(values):
        low, high = over_runs
    figures = facts.medians(cell.runs)
    bets, contradicting = (sum(facts.values(cell.runs, f"search_{name}")) for name in ("bets", "contradictions"))
    return Found(
        side=cell.side,
        kind=kind,
        limits=limits,
        run_ids=tuple(run.run_id for run in cell.runs),
        runs=len(values),
        highest=figures[f"highest_{kind}"],
        low=low,
        high=high,
        erratic=contradicting / bets if bets else 0.0,
        figures=figures,
    )


def search_within(
    ask: Ask, found: Sequence[Found], limits: str, slo: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """Return the bench that searches within other limits, which are also in words, and in words what it does.

    None: the command of the searches is unknown.
    """
    recorded = find_recorded(ask, found[0].run_ids)
    if not recorded.given:
        return None, None
    kept = {name: value for name, value in recorded.given.items() if not name.startswith("slo-")}
    parameters = tuple(write_parameters(kept))
    command = replace(recorded, parameters=parameters).workload_command(
        SERVING, {f"--{name}": [value] for name, value in slo.items()}
    )
    return command, f"searches within {limits}, as a search has the limit it was made with"


def longer_search(ask: Ask, chosen: Selection, found: Sequence[Found]) -> tuple[str | None, str | None]:
    """Return the bench with more windows than searches had, and in words what it does.

    None: they left no end open, or their command is unknown.
    With more load generators where those were the limit. A server's name is no setting of it: its command or address
    is another one, so that one of several servers is searched.
    """
    facet = chosen.layout.facet
    if any(one.low is None or one.high is None for one in found):
        if len(facet.parts) > 1 or not facet.parameters or facet.option in ("", "--server"):
            found = [one for one in found if one.low is None or one.high is None][:1]
    else:
        return None, None
    windows = max(one.figures.get("search_windows", 0.0) for one in found)
    longer = max(_LONGER, 2 * round(windows))
    varied = {"--find-windows": [str(longer)]}
    if len(found) > 1:
        varied[facet.option] = [one.side for one in found]
    recorded = find_recorded(ask, [run_id for one in found for run_id in one.run_ids])
    if not recorded.given:
        return None, None
    seconds = max(one.figures.get("run_seconds", 0.0) for one in found) * longer / max(windows, 1.0) * len(found)
    words = f"searches {longer} windows, in about {max(1, round(seconds / 60))} min"
    if any(one.figures.get("client_limited", 0) > 0 for one in found):
        varied["--clients"] = [str(2 * int(recorded.given.get("clients", "1")))]
    return recorded.workload_command(SERVING, varied), words


def write_found(one: Found) -> str:
    """Return the load that a side sustains, and how certain that is."""
    searches = f"{one.runs} {'search' if one.runs == 1 else 'searches'}"
    if one.low is not None and one.high is not None:
        ends = f"95 % interval {significant(one.low)} to {significant(one.high)}"
    elif one.low is not None:
        ends = f"95 % interval from {significant(one.low)} on"
    elif one.high is not None:
        ends = f"95 % interval up to {significant(one.high)}"
    else:
        windows = one.figures.get("search_windows")
        ends = "no 95 % interval" if windows is None else f"no 95 % interval after {windows:.0f} windows"
    return f"{significant(one.highest)} {UNITS[one.kind]} ({ends}, {searches})"


def write_doubts(one: Found) -> Iterator[str]:
    """Yield whether the clients were the limit of a search, and whether the server was erratic."""
    if one.figures.get("client_limited", 0) > 0:
        yield f"The load generator was the limit, so {one.side} may sustain more."
    if one.erratic > _ERRATIC:
        yield f"{one.side} is erratic: {100 * one.erratic:.0f} % of the windows contradict the others."


def found_table(found: Sequence[Found], figures: Mapping[str, str]) -> Table:
    """Return a row for each side; `figures` are metrics at the lower end of the interval, with their titles."""
    return Table(
        (
            Column("side", "side", "side", left=True),
            Column("kind", "highest", "kind", left=True),
            Column("limits", None, "limits"),
            Column("runs", "searches", "runs"),
            Column("highest", "load", "highest", show=significant),
            Column("low", "from", "low", show=significant),
            Column("high", "to", "high", show=significant),
            *(
                Column(name, title, f"figures.{name}", show=significant)
                for name, title in figures.items()
                if any(name in one.figures for one in found)
            ),
        ),
        list(found),
    )


def found_section(table: Table, *, is_detail: bool) -> Section:
    """Return the table with what its columns mean."""
    words = "Other figures are of the load at the interval's lower end; where that is open, of that of late windows."
    return Section("Highest load within the limits", [table, Legend(words, words)], is_detail=is_detail)
