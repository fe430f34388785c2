"""What a reader must know of the curves before acting on them, and what to do about each."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from gpuagent_collector.output.document import Caveat
from gpuagent_collector.scaling.curves import Curve, Row
from gpuagent_collector.scaling.figures import RowFigures
from gpuagent_collector.scaling.names import ranks_of
from gpuagent_collector.scaling.study import Study
from gpuagent_collector.scaling.trials import Trial
from gpuagent_collector.statistics.shift import least_runs


def find_caveats(study: Study) -> tuple[Caveat, ...]:
    """Return every warning that the data gives reason for."""
    return tuple(caveat for check in CHECKS for caveat in check(study))


def _few_runs(study: Study) -> Iterator[Caveat]:
    rows = [row for row in _figures(study) if row.speed_up and row.speed_up.low is None]
    if rows:
        yield Caveat(
            code="few_runs",
            text=f"so few runs bound no speed-up with {ranks_of(row.row.ranks for row in rows)}: "
            "how far chance moves it is not known",
            remedy=f"repeat with at least {least_runs(1)} runs of each number of ranks (7 is a good number)",
        )


def _short(study: Study) -> Iterator[Caveat]:
    ranks = _ranks_where(study, lambda row: any(trial.is_short for trial in row.trials))
    if ranks:
        yield Caveat(
            code="measure_short",
            text=f"runs with {ranks_of(ranks)} measured for less than 10 s: chance weighs much in their rates",
            remedy="measure longer, with more `--steps` or without",
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
    fewest = [curve.baseline.ranks for curve in _curves(study) if curve.baseline.ranks > 1]
    if fewest:
        yield Caveat(
            code="no_single_rank",
            text=f"without a run on 1 rank the speed-up is against {ranks_of(fewest)}: "
            "what going from one to several costs is not in it",
            remedy="run the same with `--ranks 1`",
        )


def _mixed_gpus(study: Study) -> Iterator[Caveat]:
    mixed = sorted({curve.gpus for curve in _curves(study) if curve.gpus and ", " in curve.gpus})
    for models in mixed:
        yield Caveat(
            code="mixed_gpus",
            text=f"ranks of one run were on GPUs of different models ({models}): all wait for the slowest",
            remedy="give the ranks of a run equal GPUs",
        )


def _shared_gpus(study: Study) -> Iterator[Caveat]:
    ranks = _ranks_where(study, lambda row: any(map(_shares_a_gpu, row.trials)))
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
            "its memory, and that bounds what more ranks can bring",
            remedy="read the efficiency as this node's, or run on GPUs",
        )


def _mixed_placement(study: Study) -> Iterator[Caveat]:
    ranks = _ranks_where(study, lambda row: len({len(trial.nodes) for trial in row.trials}) > 1)
    if ranks:
        yield Caveat(
            code="mixed_placement",
            text=f"runs with {ranks_of(ranks)} were spread over different numbers of nodes",
            remedy="keep to one placement: between nodes ranks talk more slowly than within one",
        )


def _unsuccessful(study: Study) -> Iterator[Caveat]:
    others = {trial.run.run_id: trial for row in _rows(study) for trial in row.others}
    if others:
        counts = sorted(Counter((trial.ranks, trial.standing) for trial in others.values()).items())
        told = ", ".join(
            f"{number} {standing.replace('_', ' ')} with {ranks_of([ranks])}" for (ranks, standing), number in counts
        )
        yield Caveat(
            code="unsuccessful",
            text=f"runs that are in no figure: {told}",
            remedy="`collector runs` says why",
        )


def _left_out(study: Study) -> Iterator[Caveat]:
    if study.alone:
        names = sorted({trial.run.workload for trial in study.alone})
        yield Caveat(
            code="left_out",
            text=f"{_is_are(study.alone)} in no curve, since no other number of ranks ran alike: {', '.join(names)}",
            remedy="curves are of runs that agree in all but their ranks: workload, place, GPU model, parameters",
        )
    if study.elastic:
        yield Caveat(
            code="elastic",
            text=f"{_is_are(study.elastic)} left out, since ranks may come and go in elastic training",
            remedy="run with a fixed number of ranks to see how it scales",
        )


def _curves(study: Study) -> list[Curve]:
    return [figures.curve for figures in study.curves]


def _figures(study: Study) -> list[RowFigures]:
    return [row for figures in study.curves for row in figures.rows]


def _rows(study: Study) -> list[Row]:
    return [figures.row for figures in _figures(study)]


def _ranks_where(study: Study, concerns: Callable[[Row], bool]) -> list[int]:
    return [row.ranks for row in _rows(study) if concerns(row)]


def _shares_a_gpu(trial: Trial) -> bool:
    return trial.gpus is not None and trial.metrics.get("gpus", trial.ranks) < trial.ranks


def _is_are(runs: Sequence[object]) -> str:
    return f"{len(runs)} run{' is' if len(runs) == 1 else 's are'}"


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
    _left_out,
)
