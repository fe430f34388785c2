"""Warnings that a reader must know before acting on a profile, each with a remedy."""

from collections.abc import Callable, Iterator

from gpuagent_collector.output.document import Caveat
from gpuagent_collector.output.human import counted
from gpuagent_collector.profile.study import Study


def find_caveats(study: Study) -> tuple[Caveat, ...]:
    """Return every warning that applies."""
    return tuple(caveat for check in CHECKS for caveat in check(study))


def _other_work(study: Study) -> Iterator[Caveat]:
    if study.differing_settings:
        yield Caveat(
            code="settings_differ",
            text=f"the two runs had different settings: {', '.join(study.differing_settings)}",
            remedy="compare runs of the same workload with the same parameters",
        )


def _one_run(study: Study) -> Iterator[Caveat]:
    if len(study.sides) > 1:
        yield Caveat(
            code="one_run",
            text="these are a few steps of one run a side: they do not show whether the sides differ by more "
            "than chance",
            remedy="compare repeated runs with `collector compare`",
        )


def _one_sided(study: Study) -> Iterator[Caveat]:
    titles = [table.lane.title for table in study.tables if None in table.totals]
    if titles:
        yield Caveat(
            code="one_sided",
            text=f"only one side has: {'; '.join(titles)}",
            remedy="run both with `--profile`, or both without, on GPUs or both on CPUs",
        )


def _others(study: Study) -> Iterator[Caveat]:
    if any(row.unsure and row.only_on is not None for table in study.tables for row in table.rows):
        yield Caveat(
            code="not_listed",
            text="a run lists the 100 longest operations of each kind; one that is missing on a side may be "
            "among the rest",
            remedy="check its time on the other side: on this one it is shorter than all that are listed",
        )


def _more_settings(study: Study) -> Iterator[Caveat]:
    if study.other_settings:
        sets = f"{counted(study.other_settings, 'other set')} of settings"
        yield Caveat(
            code="other_settings",
            text=f"traced runs with {sets} are not shown",
            remedy="narrow with --workload and --experiment, or name the runs themselves",
        )


# Every check, in the order in which warnings are shown.
CHECKS: tuple[Callable[[Study], Iterator[Caveat]], ...] = (_other_work, _one_run, _one_sided, _others, _more_settings)
