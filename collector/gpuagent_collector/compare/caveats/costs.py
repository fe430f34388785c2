"""What the prices do not cover."""

from collections.abc import Iterator

from gpuagent_collector.compare.evidence import Evidence
from gpuagent_collector.output.document import Caveat
from gpuagent_collector.prices.kinds import currencies_of


def unpriced(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where prices are known for some runs only, or for none though they were asked for."""
    derived = evidence.facts.derived
    where = evidence.sides_where(lambda run: all(evidence.metric(run, metric.name) is None for metric in derived))
    if evidence.facts.prices and where:
        yield Caveat(
            code="unpriced",
            text=f"the prices say nothing of {where}: what these cost is not known",
            remedy="add an entry for their platform, GPU and instance type to the prices",
        )


def currencies(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where costs are not set side by side."""
    present = sorted(currencies_of(evidence.facts.derived))
    if len(present) > 1:
        yield Caveat(
            code="currencies",
            text=f"costs are in {', '.join(present)}: those in different currencies are not compared",
            remedy="state all prices in one currency",
        )
