"""What a comparison cannot say, for lack of runs or of figures."""

from collections.abc import Iterator

from gpuagent_collector.compare.evidence import Evidence
from gpuagent_collector.compare.figures import values_of
from gpuagent_collector.output.document import Caveat
from gpuagent_collector.runs.cells import tell_apart
from gpuagent_collector.statistics.shift import Verdict, least_runs, outliers


def too_few(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where no outcome could show a difference."""
    tests = evidence.figures.tests
    few = [test for test in tests if test.judgement.verdict is Verdict.TOO_FEW]
    if few:
        runs = " and ".join(str(n) for n in (few[0].baseline.runs, few[0].other.runs))
        needed = least_runs(len(tests), evidence.figures.alpha)
        yield Caveat(
            code="n_too_small",
            text=f"no outcome of {runs} runs could show a difference at {100 * evidence.figures.alpha:.0f} %"
            + (f", with {len(tests)} comparisons tested together" if len(tests) > 1 else ""),
            remedy=f"repeat the experiment with at least {needed} runs a side (7 is a good number)",
        )


def fell_back(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where another metric than the usual one was tested."""
    if evidence.figures.fell_back:
        yield Caveat(
            code="no_throughput",
            text=f"no runs report a throughput on both sides, so {evidence.figures.primary.name} was tested",
            remedy="report the result `throughput` for the phase `measure`, or name another with --metric",
        )


def untested(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where a side lacks the metric that was tested."""
    metric = evidence.figures.primary
    for block in evidence.layout.blocks:
        lacking = [cell.side for cell in block.cells if cell.runs and not values_of(cell, evidence.facts, metric)]
        if lacking:
            concerned = "none of it is tested" if block.baseline in lacking else "not tested there"
            yield Caveat(
                code="untested",
                text=f"{tell_apart(block, evidence.layout.blocks)}: {concerned}, "
                f"since no run of {', '.join(lacking)} has {metric.name}",
                remedy="name a --metric that all sides have, or another --baseline",
            )


def far_from_repeats(evidence: Evidence) -> Iterator[Caveat]:
    """Warn of runs far from their repeats."""
    name = evidence.figures.primary.name
    for block in evidence.layout.blocks:
        for cell in block.cells:
            runs = [run for run in cell.runs if evidence.metric(run, name) is not None]
            odd = outliers([evidence.facts.metrics[run.run_id][name] for run in runs])
            if odd:
                told = ", ".join(f"{runs[i].repeat} ({runs[i].run_id})" for i in odd)
                yield Caveat(
                    code="outliers",
                    text=f"{name} lies far from the others of {cell.side} in repeat {told}",
                    remedy="nothing is removed, and medians bear it; look at what else happened then",
                )
