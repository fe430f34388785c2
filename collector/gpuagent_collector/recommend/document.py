"""A recommendation as a document of paragraphs and tables, for the terminal and for Markdown."""

from collections.abc import Sequence

from gpuagent_collector.metrics.bounds import CPU_PERCENT, TIME_PERCENT, UNIT_PERCENT, Bound
from gpuagent_collector.output.document import Grid, Paragraph, Section, caveat_sections
from gpuagent_collector.output.human import Notation, notation, significant
from gpuagent_collector.output.values import ABSENT
from gpuagent_collector.recommend.answer import LIMITS, answer
from gpuagent_collector.recommend.ranking import Ranking, Standing
from gpuagent_collector.recommend.reasons import Reasons
from gpuagent_collector.recommend.study import Recommendation
from gpuagent_collector.runs.cells import describe, tell_apart
from gpuagent_collector.runs.words import write_shift

# Marks the sides in the Pareto set, and the bounds that are shown.
_MARK = "●"


def build_document(recommendation: Recommendation) -> list[Section]:
    """Return the document."""
    layout = recommendation.layout
    return [
        Section(
            heading=f"Where to run {recommendation.request.workload}, by {layout.facet.name}",
            parts=(Paragraph(text=answer(recommendation)),),
        ),
        *(_block(ranking, reasons, recommendation) for ranking, reasons in recommendation.reasoned),
        *caveat_sections(recommendation.caveats),
    ]


def _block(ranking: Ranking, reasons: Sequence[Reasons], recommendation: Recommendation) -> Section:
    return Section(
        heading=tell_apart(ranking.block, recommendation.layout.blocks),
        parts=(
            Paragraph(text=f"Ran as {describe(ranking.block)}"),
            _standings(ranking),
            Paragraph(text=_legend(ranking, recommendation)),
            bounds_table(reasons),
            Paragraph(text=bounds_legend()),
        ),
    )


def _standings(ranking: Ranking) -> Grid:
    columns = {
        criterion.name: notation(
            [one.medians[criterion.name] for one in ranking.standings if criterion.name in one.medians], criterion.unit
        )
        for criterion in ranking.criteria
    }
    header = ("", "side", *columns, "score [interval]", "verdict")
    return Grid(header=header, rows=tuple(_row(one, columns) for one in ranking.standings), figures_from=2)


def _row(standing: Standing, columns: dict[str, Notation]) -> tuple[str, ...]:
    judgement = standing.judgement
    return (
        f"{standing.place}{f' {_MARK}' if standing.is_efficient else ''}",
        f"{standing.side} (n {standing.runs})",
        *(
            scale.write(standing.medians[name]) if name in standing.medians else ABSENT
            for name, scale in columns.items()
        ),
        write_shift(judgement.shift, notation([1], "")) if judgement else "1",
        judgement.verdict.value if judgement else "best",
    )


def _legend(ranking: Ranking, recommendation: Recommendation) -> str:
    weights = recommendation.request.weights
    weighed = next(iter(weights))
    if len(weights) > 1:
        weighed = f"geometric mean of {', '.join(f'{name} (weight {significant(w)})' for name, w in weights.items())}"
    titles = ", ".join(f"{one.what} of {one.per}" for one in ranking.criteria)
    sentences = [
        f"Medians over runs: {titles}. Score: {weighed}, against the best side's. Verdicts as in "
        "`collector compare`, but all pairs are tested together; sides that are not shown to differ from the best "
        "share its place."
    ]
    if any(standing.is_efficient is not None for standing in ranking.standings):
        sentences.append(
            f"{_MARK}: in the Pareto set: no other side takes as little of everything, and is shown to take less of "
            "something."
        )
    if ranking.unranked:
        sentences.append(f"Not ranked, because some of these figures are missing: {', '.join(ranking.unranked)}.")
    if "cost" not in {one.name for one in ranking.criteria}:
        prices = recommendation.request.prices
        reason = f"{prices.source} has no prices of these nodes in one currency" if prices else "give --prices FILE"
        sentences.append(f"Cost is unknown: {reason}.")
    return " ".join(sentences)


def bounds_table(reasons: Sequence[Reasons]) -> Grid:
    """Return a row for each limit with its figure on each side."""
    rows = zip(*(one.bounds for one in reasons), strict=True)
    return Grid(
        header=("bound by", "shown from", *(one.side for one in reasons)),
        rows=tuple(
            (LIMITS[row[0].limit], f"{significant(row[0].threshold_percent, 2)} %", *map(_cell, row)) for row in rows
        ),
    )


def _cell(bound: Bound) -> str:
    if bound.percent is None:
        return ABSENT
    return f"{f'{_MARK} ' if bound.is_shown else ''}{significant(bound.percent)} %"


def bounds_legend() -> str:
    """Return the meaning of the figures, and the thresholds from which they show a bound."""
    third, cpu, unit = (significant(each, 2) for each in (TIME_PERCENT, CPU_PERCENT, UNIT_PERCENT))
    return (
        f"{_MARK}: shown; {ABSENT}: not measured. Of a step's time ({third} %): launches, in which the GPU had no work "
        "and the host did not wait for data; data, in which it waited and the GPU had no work; communication that "
        f"nothing hides. Of a unit ({unit} %): computing, the busiest pipes or FLOPs of the peak; device memory, its "
        f"bandwidth in use. The host's CPU ({cpu} %): the run's own use, of what it may use; if it uses a GPU, only "
        f"if that has no work for {third} %."
    )
