"""Warnings that a reader must know before acting on the curves, each with a remedy."""

from collections import Counter
from collections.abc import Callable, Iterator

from gpuagent_collector.output.document import Caveat
from gpuagent_collector.output.human import counted
from gpuagent_collector.runs.cells import cancelled_caveat
from gpuagent_collector.runs.words import REASONS
from gpuagent_collector.scaling.curves import Row
from gpuagent_collector.scaling.names import ranks_of
from gpuagent_collector.scaling.study import Study
from gpuagent_collector.statistics.shift import least_runs


def find_caveats(study: Study) -> tuple[Caveat, ...]:
    """Return every warning that applies."""
    return tuple(caveat for check in CHECKS for caveat in check(study))


def _few_runs(study: Study) -> Iterator[Caveat]:
    rows = [row for each in study.curves for row in each.rows if row.speed_up and row.speed_up.low is None]
    if rows:
        yield Caveat(
            code="few_runs",
            text="too few runs for a confidence interval on the speed-up with "
            + ranks_of(row.row.ranks for row in rows),
            remedy=f"repeat with at least {least_runs(1)} runs of each number of ranks (7 is a good number)",
        )


def _short(study: Study) -> Iterator[Caveat]:
    ranks = _ranks_where(study, lambda row: any(trial.is_short for trial in row.trials))
    if ranks:
        yield Caveat(
            code="measure_short",
            text=f"runs with {ranks_of(ranks)} measured for less than 10 s: their rates depend much on chance",
            remedy="measure longer",
        )


def _one_node(study: Study) -> Iterator[Caveat]:
    nodes = frozenset().union(*(trial.nodes for row in _rows(study) for trial in row.trials))
    if len(nodes) == 1:
        yield Caveat(
            code="one_node",
            text=f"all runs are from one node ({next(iter(nodes))}): they say nothing about other nodes",
            remedy="repeat on other nodes of the same kind",
        )


def _no_single_rank(study: Study) -> Iterator[Caveat]:
    fewest = [each.curve.baseline.ranks for each in study.curves if each.curve.baseline.ranks > 1]
    if fewest:
        yield Caveat(
            code="no_single_rank",
            text=f"without a run on 1 rank the speed-up is against {ranks_of(fewest)}: "
            "it does not include the cost of going from one to several",
            remedy="run the same on 1 rank",
        )


def _mixed_gpus(study: Study) -> Iterator[Caveat]:
    models_of_curves = {each.curve.gpus for each in study.curves}
    for models in sorted(models for models in models_of_curves if models and ", " in models):
        yield Caveat(
            code="mixed_gpus",
            text=f"ranks of one run were on GPUs of different models ({models}): all wait for the slowest",
            remedy="give the ranks of a run equal GPUs",
        )


def _shared_gpus(study: Study) -> Iterator[Caveat]:
    ranks = _ranks_where(
        study,
        lambda row: any(one.gpus and one.metrics.get("gpus", one.ranks) < one.ranks for one in row.trials),
    )
    if ranks:
        yield Caveat(
            code="shared_gpus",
            text=f"more ranks than GPUs that are known to be used, with {ranks_of(ranks)}: ranks shared a GPU, "
            "or the run did not say which it used",
            remedy="give each rank a GPU of its own",
        )


def _on_cpu(study: Study) -> Iterator[Caveat]:
    ranks = _ranks_where(study, lambda row: row.ranks > row.nodes and any(trial.gpus is None for trial in row.trials))
    if ranks:
        yield Caveat(
            code="on_cpu",
            text=f"no GPU is known to be used with {ranks_of(ranks)}: ranks on one node's CPU share its cores and "
            "its memory, which limits the gain of more ranks",
            remedy="read the efficiency as that of this node, or run on GPUs",
        )


def _mixed_placement(study: Study) -> Iterator[Caveat]:
    ranks = _ranks_where(study, lambda row: len({len(trial.nodes) for trial in row.trials}) > 1)
    if ranks:
        yield Caveat(
            code="mixed_placement",
            text=f"runs with {ranks_of(ranks)} were spread over different numbers of nodes",
            remedy="use one placement: communication between nodes is slower than within one",
        )


def _unsuccessful(study: Study) -> Iterator[Caveat]:
    others = {trial.run.run_id: trial for row in _rows(study) for trial in row.others}
    if others:
        counts = sorted(Counter((trial.ranks, trial.standing) for trial in others.values()).items())
        listed = ", ".join(
            f"{number} {standing.replace('_', ' ')} with {ranks_of([ranks])}" for (ranks, standing), number in counts
        )
        yield Caveat(
            code="unsuccessful",
            text=f"runs that are in no figure: {listed}",
            remedy=f"reasons: {REASONS}",
        )


def _cancelled(study: Study) -> Iterator[Caveat]:
    if study.cancelled:
        yield cancelled_caveat(str(len(study.cancelled)))


def _left_out(study: Study) -> Iterator[Caveat]:
    if study.alone:
        names = sorted({trial.run.workload for trial in study.alone})
        yield Caveat(
            code="left_out",
            text=f"{counted(len(study.alone), 'run')} in no curve, as no other number of ranks ran alike: "
            + ", ".join(names),
            remedy="runs of a curve agree in all but their ranks: workload, place, GPU model, parameters",
        )
    if study.elastic:
        yield Caveat(
            code="elastic",
            text=f"{counted(len(study.elastic), 'run')} left out: ranks may come and go in elastic training",
            remedy="run with a fixed number of ranks to see how it scales",
        )


def _rows(study: Study) -> list[Row]:
    return [row.row for figures in study.curves for row in figures.rows]


def _ranks_where(study: Study, concerns: Callable[[Row], bool]) -> list[int]:
    return [row.ranks for row in _rows(study) if concerns(row)]


# Every check, in the order in which warnings are shown.
CHECKS: tuple[Callable[[Study], Iterator[Caveat]], ...] = (
    _few_runs,
    _short,
    _one_node,
    _no_single_rank,
    _mixed_gpus,
    _shared_gpus,
    _on_cpu,
    _mixed_placement,
    _unsuccessful,
    _cancelled,
    _left_out,
)
