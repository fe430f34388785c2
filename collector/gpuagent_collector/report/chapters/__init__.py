"""The chapters of a report, each a file and a line of the table."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from markupsafe import Markup

from gpuagent_collector.report.chapters import (
    answer,
    bounds,
    costs,
    distributions,
    kernels,
    matrix,
    metrics,
    missing,
    over_time,
    reproduce,
    roofline,
    run,
    scaling,
    serving,
    warnings,
    where,
)
from gpuagent_collector.report.study import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """One chapter.

    Attributes:
        anchor: its name within the page.
        title: its heading.
        write: yields its HTML; nothing where the store has nothing of it.
    """

    anchor: str
    title: str
    write: Callable[[Report], Iterator[Markup]]


# Every chapter, in the order of the page.
CHAPTERS: tuple[Chapter, ...] = (
    Chapter(anchor="run", title="Run", write=run.write),
    Chapter(anchor="table", title="Workloads by side", write=matrix.write),
    Chapter(anchor="answer", title="Answer", write=answer.write),
    Chapter(anchor="where", title="Where it ran", write=where.write),
    Chapter(anchor="metrics", title="Figures side by side", write=metrics.write),
    Chapter(anchor="over-time", title="Over time", write=over_time.write),
    Chapter(anchor="distributions", title="Distributions", write=distributions.write),
    Chapter(anchor="roofline", title="Roofline", write=roofline.write),
    Chapter(anchor="kernels", title="Kernels and operators", write=kernels.write),
    Chapter(anchor="scaling", title="Scaling", write=scaling.write),
    Chapter(anchor="serving", title="Serving", write=serving.write),
    Chapter(anchor="bounds", title="What bounds it", write=bounds.write),
    Chapter(anchor="costs", title="Energy and cost", write=costs.write),
    Chapter(anchor="output", title="Output", write=run.write_output),
    Chapter(anchor="warnings", title="Warnings", write=warnings.write),
    Chapter(anchor="missing", title="Not shown", write=missing.write),
    Chapter(anchor="reproduce", title="How to reproduce it", write=reproduce.write),
)
