"""A plan as a document of paragraphs and tables, for the terminal and for Markdown."""

from math import expm1

from gpuagent_collector.compare.answer import spoken
from gpuagent_collector.output.document import Grid, Paragraph, Section
from gpuagent_collector.output.human import significant
from gpuagent_collector.runs.cells import tell_apart
from gpuagent_collector.sample_size.power import MOST_REPEATS
from gpuagent_collector.sample_size.study import POWERS, BlockPlan, Need, Plan


def build_document(plan: Plan) -> list[Section]:
    """Return the document."""
    first = Section(
        heading=f"Repeats for a new experiment: {spoken(plan.metric, plan.question.stat)}",
        parts=(Paragraph(text=_advice(plan)),),
    )
    return [first, *(_section(block, plan) for block in plan.blocks)]


def _advice(plan: Plan) -> str:
    question = plan.question
    within = any(effect <= question.delta for effect in question.effects)
    together = f", in {question.comparisons} comparisons tested together" if question.comparisons > 1 else ""
    return (
        "Plan a new experiment with that many repeats on each side. Do not extend the runs at hand: who looks, runs "
        f"more and looks again finds differences that are none in more than {_percent(question.alpha)} of cases. "
        f"Powers are how probably a difference of that size, or equality, is then shown{together}. Cautious: were the "
        "spread as large as these runs still allow (upper end of a one-sided 80 % interval)."
        + (f" A difference within {_percent(question.delta)} is called =, unless --delta is smaller." if within else "")
    )


def _section(plan: BlockPlan, whole: Plan) -> Section:
    cells = sum(1 for cell in plan.block.cells if cell.runs)
    told = (
        f"Runs that differ only in chance scatter by {_spread(plan.spread.seen)}, cautiously "
        f"{_spread(plan.spread.cautious)} (standard deviation; {plan.runs} runs in {cells} "
        f"circumstance{'s' * (cells != 1)})."
    )
    header = ("to show", *(f"{_percent(power)} power" for power in POWERS))
    header += tuple(f"cautious, {_percent(power)}" for power in POWERS)
    return Section(
        heading=tell_apart(plan.block, [other.block for other in whole.blocks]),
        parts=(
            Paragraph(text=told),
            Grid(header=header, rows=tuple(_row(need, whole) for need in plan.needs)),
        ),
    )


def _row(need: Need, plan: Plan) -> tuple[str, ...]:
    what = (
        f"equality to within {_percent(plan.question.delta)}"
        if need.effect is None
        else f"a difference of {_percent(need.effect)}"
    )
    return (what, *map(_repeats, (*need.as_seen, *need.cautious)))


def _repeats(number: int | None) -> str:
    return f"> {MOST_REPEATS}" if number is None else str(number)


def _percent(share: float) -> str:
    return f"{significant(100 * share)} %"


def _spread(log_deviation: float) -> str:
    return _percent(expm1(log_deviation))
