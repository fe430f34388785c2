"""A whole study of scaling: from the request to curves, their figures, and the runs in none of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuagent_collector.prices.price import Prices
from gpuagent_collector.prices.runs import with_costs
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import CANCELLED
from gpuagent_collector.runs.data import Run, load_facts
from gpuagent_collector.runs.facets import find_facet
from gpuagent_collector.runs.find import find_runs, only_with
from gpuagent_collector.runs.words import reasons
from gpuagent_collector.scaling.curves import By, RankedRun, find_curves, is_elastic, make_trials, without_curve
from gpuagent_collector.scaling.figures import CurveFigures, Measure, compute_curve, known_measures, ranks_of
from gpuagent_common.errors import GpuAgentError


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study of scaling with everything that is shown of it.

    Attributes:
        curves: at least one.
        measures: the figures of each row beside the throughput.
        alone: succeeded runs with a throughput that are in no curve.
        elastic: runs that were left out, because their ranks may come and go.
        cancelled: runs that the user stopped; they are in no row.
    """

    curves: tuple[CurveFigures, ...]
    measures: tuple[Measure, ...]
    alone: tuple[RankedRun, ...]
    elastic: tuple[Run, ...]
    cancelled: tuple[Run, ...]


def study_scaling(
    ask: Ask,
    *,
    workload: str | None,
    platform: str | None,
    experiment: str | None,
    prices: Prices | None = None,
    by: str = By.RANKS.value,
) -> Study:
    """Return the scaling of the workload, on the platform and in the experiment; None: any. `prices` None: unknown.

    Raises:
        MisuseError: a workload, platform or experiment is unknown.
        GpuAgentError: there are no two numbers of ranks to compare.
    """
    runs = find_runs(ask, find_facet("platform"), workload=workload, experiment=experiment)
    return study_runs(ask, only_with(runs, "platform", [platform] if platform else []), prices, By(by))


def study_runs(ask: Ask, runs: Iterable[Run], prices: Prices | None, by: By = By.RANKS) -> Study:
    """Return the scaling of these runs.

    Raises:
        GpuAgentError: there are no two numbers of ranks to compare.
    """
    chosen = list(runs)
    cancelled = [run for run in chosen if run.status == CANCELLED]
    elastic = [run for run in chosen if is_elastic(run) and run not in cancelled]
    fixed = [run for run in chosen if run not in elastic and run not in cancelled]
    facts = with_costs(ask, load_facts(ask, [run.run_id for run in fixed]), prices)
    trials = make_trials(fixed, facts)
    curves = find_curves(trials, by)
    if not curves:
        raise GpuAgentError(f"no scaling to show: {_what_there_is(trials, elastic, by)}")
    measures = known_measures(facts.derived)
    return Study(
        curves=tuple(compute_curve(curve, measures) for curve in curves),
        measures=measures,
        alone=tuple(without_curve(trials, curves)),
        elastic=tuple(elastic),
        cancelled=tuple(cancelled),
    )


def _what_there_is(trials: Sequence[RankedRun], elastic: Sequence[Run], by: By) -> str:
    """Return the reason for having no curve, and a remedy."""
    counted = [trial for trial in trials if trial.counts]
    if not counted and elastic:
        return "all runs are elastic; run with a fixed number of ranks"
    if not counted:
        why = reasons(trial.run.status or "" for trial in trials if trial.run.status != "succeeded")
        return f"no run succeeded and reported a throughput; report one (docs/your-program.md), or see {why}"
    if by is By.NODES:
        return "no runs on two numbers of nodes had as many ranks on each, and the same settings"
    ranks = sorted({trial.ranks for trial in counted})
    if len(ranks) > 1:
        return f"no two of the numbers of ranks ({', '.join(map(str, ranks))}) ran with the same settings"
    other = 1 if ranks[0] > 1 else 2
    example = f"gpuagent run {counted[0].run.workload} --ranks {other} --repeat 7"
    if counted[0].run.command:  # a program of the user's own takes no --ranks
        example = f"gpuagent run --repeat 7 -- torchrun --nproc-per-node {other} SCRIPT"
    return f"all runs had {ranks_of(ranks)}; run another number, such as `{example}`"
