"""The operations that took the time of a step, side by side."""

from collections.abc import Sequence

from gpuagent_collector.answers.profile import Study
from gpuagent_collector.answers.profile_data import OTHERS, LaneTimes
from gpuagent_collector.present.human import notation, significant
from gpuagent_collector.present.shortening import shorten
from gpuagent_collector.report.figures.base import Data, Figure, color, safe, short

_MOST = 10
_LONGEST_NAME = 34
# Hatches of the bars: sides differ without colours as well.
_PATTERNS = ("", "/", "x", ".")


def kernels_figure(lane: LaneTimes, study: Study, sides: Sequence[str]) -> Figure:
    """Return the operations of a lane that take longest on any side, a bar a side."""
    rows = sorted(lane.rows, key=lambda row: -row.longest_seconds)[:_MOST]
    scale = notation([amount.seconds for row in rows for amount in row.amounts if amount], "seconds")
    called = shorten(["others" if row.name == OTHERS else row.short_name for row in rows], _LONGEST_NAME)
    data: list[Data] = []
    for number, side in enumerate(study.sides):
        amounts = [row.amounts[number] for row in rows]
        took = [
            f"{scale.write(each.seconds)} in {significant(each.calls)} calls" if each else "none" for each in amounts
        ]
        index = sides.index(side.name)
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": safe(side.name),
                "y": list(range(len(rows))),
                "x": [short(amount.seconds / scale.divisor) if amount else None for amount in amounts],
                "marker": {"color": color(index), "pattern": {"shape": _PATTERNS[index % len(_PATTERNS)]}},
                "hovertext": [safe(f"{row.name}: {side.name}: {each}") for row, each in zip(rows, took, strict=True)],
                "hoverinfo": "text",
            }
        )
    return Figure(
        title=f"{lane.lane.title}, {scale.symbol} per step",
        description=f"The operations that take longest: {', '.join(called[:3])}; the table below has all",
        data=data,
        layout={
            "barmode": "group",
            "bargap": 0.25,
            "xaxis": {"ticksuffix": f" {scale.symbol}", "nticks": 5, "tickangle": 0},
            "yaxis": {
                "autorange": "reversed",
                "tickvals": list(range(len(rows))),
                "ticktext": [safe(name) for name in called],
                "tickfont": {"family": "ui-monospace, monospace", "size": 11},
                "showgrid": False,
            },
        },
        height=70 + 20 * len(rows) * len(study.sides),
    )
