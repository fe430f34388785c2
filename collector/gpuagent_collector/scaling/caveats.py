"""Warnings that a reader must know before acting on the curves, each with a remedy."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpuagent_collector.output.document import Caveat
from gpuagent_collector.runs.arguments import differing_arguments, write_argument
from gpuagent_collector.runs.cells import cancelled_caveat
from gpuagent_collector.runs.words import reasons
from gpuagent_collector.scaling.curves import Row
from gpuagent_collector.scaling.figures import ranks_of
from gpuagent_collector.scaling.study import Study
from gpuagent_collector.statistics.shift import least_runs
from gpuagent_common.text import counted

# Of the arguments in which commands differ.
_SHOWN_ARGUMENTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """A warning about the rows for which `concerns` is true; {} in its text is their numbers of ranks."""

    code: str
    concerns: Callable[[Row], bool]
    text: str
    remedy: str

    def __call__(self, study: Study) -> Iterator[Caveat]:
        ranks = [row.ranks for row in _rows(study) if self.concerns(row)]
        if ranks:
            yield Caveat(code=self.code, text=self.text.format(ranks_of(ranks)), remedy=self.remedy)


def find_caveats(study: Study) -> tuple[Caveat, ...]:
    """Return every warning that applies."""
    return tuple(caveat for check in CHECKS for caveat in check(study))


def _rows(study: Study) -> list[Row]:
    return [row.row for figures in study.curves for row in figures.rows]


def _few_runs(study: Study) -> Iterator[Caveat]:
    rows = [row for each in study.curves for row in each.rows if row.speed_up and row.speed_up.low is None]
    if rows:
        yield Caveat(
            code="few_runs",
            text="too few runs for a confidence interval on the speed-up with "
            + ranks_of(row.row.ranks for row in rows),
            remedy=f"repeat with at least {least_runs(1)} runs of each number of ranks (7 is a good number)",
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
    for models in sorted({each.curve.gpus for each in study.curves if each.curve.gpus and ", " in each.curve.gpus}):
        yield Caveat(
            code="mixed_gpus",
            text=f"ranks of one run were on GPUs of different models ({models}): all wait for the slowest",
            remedy="give the ranks of a run equal GPUs",
        )


def _different_commands(study: Study) -> Iterator[Caveat]:
    """Warn where runs of one number of ranks differ in their arguments, which the ranks cannot explain."""
    for row in _rows(study):
        found = differing_arguments([[trial.run.command for trial in row.trials]])
        if found:
            listed = "; ".join(write_argument(*pair) for pair in found[:_SHOWN_ARGUMENTS])
            yield Caveat(
                code="different_commands",
                text=f"runs with {ranks_of([row.ranks])} had different commands: {listed}",
                remedy="give programs with other arguments other names: `gpuagent run --name`",
            )


def _unsuccessful(study: Study) -> Iterator[Caveat]:
    others = {trial.run.run_id: trial for row in _rows(study) for trial in row.others}
    if others:
        counts = sorted(Counter((trial.ranks, trial.standing) for trial in others.values()).items())
        listed = ", ".join(
            f"{number} {standing.replace('_', ' ')} with {ranks_of([ranks])}" for (ranks, standing), number in counts
        )
        why = reasons(trial.run.status or "" for trial in others.values() if trial.run.status != "succeeded")
        yield Caveat(code="unsuccessful", text=f"runs that are in no figure: {listed}", remedy=f"reasons: {why}")


def _left_out(study: Study) -> Iterator[Caveat]:
    if study.cancelled:
        yield cancelled_caveat(str(len(study.cancelled)))
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


# Every check, in the order in which warnings are shown.
CHECKS: tuple[Callable[[Study], Iterator[Caveat]], ...] = (
    _few_runs,
    _Check(
        code="measure_short",
        concerns=lambda row: any(trial.is_short for trial in row.trials),
        text="runs with {} measured for less than 10 s: their rates depend much on chance",
        remedy="measure longer",
    ),
    _one_node,
    _no_single_rank,
    _mixed_gpus,
    _different_commands,
    _Check(
        code="shared_gpus",
        concerns=lambda row: any(one.gpus and one.metrics.get("gpus", one.ranks) < one.ranks for one in row.trials),
        text="more ranks than GPUs that are known to be used, with {}: ranks shared a GPU, or the run did not report "
        "which it used",
        remedy="give each rank a GPU of its own",
    ),
    _Check(
        code="on_cpu",
        concerns=lambda row: row.ranks > row.nodes and any(trial.gpus is None for trial in row.trials),
        text="no GPU is known to be used with {}: ranks on one node's CPU share its cores and its memory, which limits "
        "the gain of more ranks",
        remedy="read the efficiency as that of this node, or run on GPUs",
    ),
    _Check(
        code="mixed_placement",
        concerns=lambda row: len({len(trial.nodes) for trial in row.trials}) > 1,
        text="runs with {} were spread over different numbers of nodes",
        remedy="use one placement: communication between nodes is slower than within one",
    ),
    _unsuccessful,
    _left_out,
)
