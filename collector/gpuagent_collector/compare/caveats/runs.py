"""Warnings about runs and their samples."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from operator import itemgetter

import numpy as np

from gpuagent_collector.compare.figures import Evidence, Flags
from gpuagent_collector.metrics import BY_NAME
from gpuagent_collector.present.answer import Caveat
from gpuagent_collector.present.human import significant
from gpuagent_collector.runs.arguments import differing_arguments, identify_command, write_argument
from gpuagent_collector.runs.cells import CANCELLED, EXCLUDED, UNFINISHED, Block, cancelled_caveat, first_few
from gpuagent_collector.runs.data import Run
from gpuagent_collector.runs.facets import CONDITIONS, FACETS, Facet, can_name
from gpuagent_collector.runs.job_runs import are_jobs
from gpuagent_collector.runs.words import reasons, spoken, write_command
from gpuagent_collector.statistics.changes import LEAST_PART, find_changes
from gpuagent_common.text import counted

# Methods of run_energy in words.
_ENERGY_METHODS: Mapping[str, str] = {
    "power_samples": "the driver's power readings",
    "power_instant": "polled power",
    "power_average_1s": "polled power, averaged over 1 s",
    "power_polled": "polled power of unknown kind",
    "counter": "the energy counter",
}

# Groups of metrics that follow from the throughput.
_OF_SPEED = ("Throughput", "Time", "Energy", "Cost")

# What the first measured steps may take from a run's throughput.
_WARM_UP_SHARE = 0.02

_FACET_NAMES = frozenset(facet.name for facet in FACETS)

# Of a side, whether they changed in the course of time: more take too long.
_MOST_TESTED = 500

# Of the arguments in which commands differ.
_SHOWN_ARGUMENTS = 3

# In a shorter pause between runs nobody compares them, and decides to make more.
_SHORTEST_LOOK = timedelta(seconds=20)


def of_jobs(evidence: Evidence) -> Iterator[Caveat]:
    """Warn that jobs that failed count as well."""
    if are_jobs(evidence.layout.run_ids):
        yield Caveat(
            code="jobs",
            text="how jobs ended is not recorded, so those that failed count too",
            remedy='leave out those that ended early: `--where "seconds > 600"`',
        )


def warming_up(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where the first measured steps pull the throughput down, and what follows from it is compared."""
    facts = evidence.facts
    if evidence.figures.primary.group not in _OF_SPEED:
        return

    def loses(runs: Sequence[Run]) -> Flags:
        names = ("steady_throughput", "timed_throughput", "steps_before_steady")
        steady, whole, before = (np.nan_to_num(facts.column(runs, name)) for name in names)
        return (before > 0) & (whole > 0) & (steady > whole * (1 + _WARM_UP_SHARE))

    where = evidence.sides_where(loses)
    if where:
        steps = evidence.highest("steps_before_steady")
        remedies = []
        if evidence.has_everywhere("steady_throughput"):
            remedies.append(f"{evidence.command(metric='steady_throughput')} leaves them out")
        # Programs of the user's own have no such option.
        warmups = [block.parameters.get("warmup") for block in evidence.layout.blocks]
        known = [warmup for warmup in warmups if isinstance(warmup, int)]
        if len(known) == len(warmups):
            remedies.append(f"run the workload with `--warmup {max(known) + int(steps)}`")
        yield Caveat(
            code="warming_up",
            text=f"the first measured steps were slower, by more than {100 * _WARM_UP_SHARE:.0f} % of the throughput, "
            f"in {where}",
            remedy=", or ".join(remedies)
            or f"run more steps, or report the phase `measure` {steps:.0f} steps later (docs/your-program.md)",
        )


def whole_run(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where start-up is part of the figures, unless whole runs are compared."""
    if evidence.figures.primary.name == "run_seconds":
        return
    # The figures of an imported result are of what its program measured.
    where = evidence.sides_where(
        lambda runs: (
            np.isnan(evidence.facts.column(runs, "measure_seconds"))
            & [run.imported is None and run.started_at is not None for run in runs]
        )
    )
    if where:
        yield Caveat(
            code="whole_run",
            text=f"no measured phase was reported in {where}: samples cover the start-up too",
            remedy="report the phase `measure` (docs/your-program.md), or run with `gpuagent run --observe`",
        )


def energy_methods(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where the sides measured energy in different ways."""
    texts = evidence.facts.texts
    methods = {
        side: {name for run in runs for name in texts.get(run.run_id, {}).get("energy_method", "").split(", ") if name}
        for side, runs in evidence.sides.items()
    }
    known = {side: sorted(_ENERGY_METHODS[name] for name in names) for side, names in methods.items() if names}
    if len(set(map(tuple, known.values()))) > 1:
        listed = "; ".join(f"{side}: {' and '.join(names)}" for side, names in known.items())
        yield Caveat(
            code="energy_methods",
            text=f"energy was measured in different ways on the sides: {listed}",
            remedy="small differences of energy may come from that; the view `energy` has the method of each figure",
        )


def failed_sides(evidence: Evidence) -> Iterator[Caveat]:
    """Warn of sides of which no run succeeded, such as settings that fail: they are missing in every table."""
    ended = _count_others(evidence, _is_ended, among_sides=False)
    if ended:
        why = reasons((status for _, status in ended), evidence.asked.get("--experiment"))
        counts = _write_counts(evidence, ended)
        yield Caveat(code="failed_sides", text=f"sides that are in no figure: {counts}", remedy=f"see why: {why}")


def unsuccessful(evidence: Evidence) -> Iterator[Caveat]:
    """Warn of runs that ended without success on sides with others that succeeded."""
    ended = _count_others(evidence, _is_ended, among_sides=True)
    if ended:
        why = reasons((status for _, status in ended), evidence.asked.get("--experiment"))
        yield Caveat(
            code="unsuccessful",
            text=f"runs that are in no figure: {_write_counts(evidence, ended)}",
            remedy=f"a side that fails more often is worse than its figures; reasons: {why}",
        )


def cancelled(evidence: Evidence) -> Iterator[Caveat]:
    """Warn of runs that the user stopped."""
    numbers = _count_others(evidence, lambda status: status == CANCELLED)
    if numbers:
        counts = (f"{number:,} {_name(evidence, side)}".rstrip() for (side, _), number in numbers.items())
        yield cancelled_caveat(", ".join(counts), evidence.asked.get("--experiment"))


def excluded(evidence: Evidence) -> Iterator[Caveat]:
    """Warn of runs that an operator keeps out of comparisons."""
    numbers = _count_others(evidence, lambda status: status == EXCLUDED)
    if numbers:
        counts = _write_counts(evidence, numbers).replace(f" {EXCLUDED}", "")
        yield Caveat(
            code="excluded",
            text=f"runs that an operator has excluded: {counts}",
            remedy="`collector runs` marks them; an operator takes one back with run edit RUN --include",
        )


def unfinished(evidence: Evidence) -> Iterator[Caveat]:
    """Warn of runs that have not ended."""
    numbers = _count_others(evidence, lambda status: status in UNFINISHED)
    if numbers:
        counts = _write_counts(evidence, numbers)
        yield Caveat(
            code="unfinished", text=f"runs that have not ended yet: {counts}", remedy="compare again when they have"
        )


def _is_ended(status: str) -> bool:
    return status not in (*UNFINISHED, CANCELLED, EXCLUDED)


def _count_others(
    evidence: Evidence, concerns: Callable[[str], bool], *, among_sides: bool | None = None
) -> Counter[tuple[str, str]]:
    """Return the number of runs without success by side and status; of sides with figures, of the others, or of all."""
    numbers: Counter[tuple[str, str]] = Counter()
    for cell in (cell for block in evidence.layout.blocks for cell in block.cells):
        if among_sides is None or (cell.side in evidence.layout.sides) is among_sides:
            numbers.update({(cell.side, status): n for status, n in cell.others.items() if concerns(status)})
    return numbers


def _write_counts(evidence: Evidence, numbers: Mapping[tuple[str, str], int]) -> str:
    words = [f"{n} {_name(evidence, side)} {status.replace('_', ' ')}" for (side, status), n in numbers.items()]
    return ", ".join(word.replace("  ", " ") for word in words)


def _name(evidence: Evidence, side: str) -> str:
    """Return the name of a side; '' where all runs are one."""
    return "" if "all" in evidence.layout.facet.names else evidence.layout.facet.name_side(side)


def untested_sides(evidence: Evidence) -> Iterator[Caveat]:
    """Warn of sides that were named and are in no test."""
    yield from _left_out(evidence, {*evidence.named} - {*evidence.layout.sides}, "sides_left_out")


def left_out(evidence: Evidence) -> Iterator[Caveat]:
    """Warn of runs without a counterpart."""
    asked = {*evidence.named} - {*evidence.layout.sides}
    yield from _left_out(evidence, {one.side for one in evidence.layout.left_out} - asked, "left_out")


_COUNT_ITEMS = "run them again with `--items-per-step`, so that samples are counted (docs/your-program.md)"
# Why runs are left out that have no counterpart, and that have one.
_WHY_LEFT_OUT = {
    False: "without a counterpart on another side",
    True: "as a step of another batch size is other work",
}


def _left_out(evidence: Evidence, sides: Collection[str], code: str) -> Iterator[Caveat]:
    name_side = evidence.layout.facet.name_side
    for is_unlike, why in _WHY_LEFT_OUT.items():
        found = [one for one in evidence.layout.left_out if one.side in sides and one.is_unlike is is_unlike]
        runs: Counter[str] = Counter()
        for one in found:
            runs[one.side] += one.runs
        if runs:
            settings = list(dict.fromkeys(one.what for one in found))
            more = f" and {counted(len(settings) - 1, 'other setting')}" if len(settings) > 1 else ""
            left = [f"{counted(number, 'run')} of {name_side(side)}" for side, number in runs.items()]
            remedy = "run the same workload with the same parameters on each side"
            if is_unlike:
                has_others = runs.keys() <= {*evidence.layout.sides}
                remedy = "nothing to do: their other runs are compared" if has_others else _COUNT_ITEMS
            yield Caveat(code=code, text=f"{', '.join(left)} left out, {why}: {settings[0]}{more}", remedy=remedy)


def one_node(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where a side is one node."""
    nodes = {side: {run.nodes for run in runs} for side, runs in evidence.sides.items()}
    # Of imported results the node may be unknown.
    single = [side for side, names in nodes.items() if len(names) == 1 and None not in names]
    if "node" in evidence.layout.facet.names or not single:
        return
    if len(set().union(*nodes.values())) == 1:
        # Programs and their settings are compared on a node; that it is one is no news.
        if all(part.argument is not None or part.parameters for part in evidence.layout.facet.parts):
            return
        text = f"all runs are from one node ({next(iter(nodes[single[0]]))}): they say nothing about other nodes"
    else:
        whose = "each side" if len(single) == len(nodes) else ", ".join(single)
        text = f"one node for {whose}: the difference may be the node's"
    yield Caveat(code="one_node", text=text, remedy="repeat on other nodes")


def few_nodes(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where sides of several nodes each have several runs of a node: the test counts every run."""
    nodes = {side: {run.nodes for run in runs} for side, runs in evidence.sides.items()}
    several = all(len(names) > 1 and None not in names for names in nodes.values())
    if "node" in evidence.layout.facet.names or not several or len(set(map(frozenset, nodes.values()))) == 1:
        return
    counts = {side: (len(runs), len(nodes[side])) for side, runs in evidence.sides.items()}
    if any(runs > of_side for runs, of_side in counts.values()):
        listed = ", ".join(f"{runs:,} runs of {of_side:,} nodes for {side}" for side, (runs, of_side) in counts.items())
        see = f", or see {evidence.command(by='node')}" if evidence.is_by_facet else ""
        yield Caveat(
            code="few_nodes",
            text=f"{listed}: what the runs of a node have in common counts once for each of them",
            remedy=f"if nodes differ, a false 'differs' is likelier than stated: use more nodes{see}",
        )


def not_interleaved(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where the sides did not take turns."""
    if evidence.layout.facet.in_time:
        yield Caveat(
            code="not_interleaved",
            text="runs before and after an event cannot take turns: whatever else changed then may be the difference",
            remedy="look at nodes without the event, `collector history`, and at what else differs (--all)",
        )
        return
    tested = {id(test.block): test.block for test in evidence.figures.tests}
    if any(map(_is_sequential, tested.values())):
        remedy = "make one run on each side in turn"
        if not evidence.layout.facet.names & {"platform", "node", "device"}:
            remedy += ", as gpuagent bench does"
        if are_jobs(evidence.layout.run_ids):
            remedy = "compare jobs that ran on the same days"
        yield Caveat(
            code="not_interleaved",
            text="all runs of one side came before all of another: warming up or neighbours may be the difference",
            remedy=remedy,
        )


def _is_sequential(block: Block) -> bool:
    """Return whether several runs of one side ended before those of another side started."""
    cells = [cell for cell in block.cells if cell.runs]
    spans: list[tuple[datetime, datetime]] = []
    for cell in cells:
        starts = [run.started_at for run in cell.runs if run.started_at]
        ends = [run.ended_at for run in cell.runs if run.ended_at]
        spans += [(min(starts), max(ends))] if starts and ends else []
    many = all(len(cell.runs) > 1 for cell in cells)
    return many and any(before[1] <= after[0] for before, after in pairwise(sorted(spans)))


def joined(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where a side repeats a command on a node after a pause: then several experiments are joined."""
    # No data shows whether somebody looked at the runs in between.
    sittings = _find_sittings(run for runs in evidence.sides.values() for run in runs)
    again: Counter[str] = Counter()
    repeated = []
    for block in evidence.layout.blocks:
        before = again.total()
        for cell in block.cells:
            first: dict[tuple[object, ...], int] = {}
            numbered = (run for run in cell.runs if run.repeat is not None)
            for sitting, run in sorted(((sittings[run.run_id], run) for run in numbered), key=itemgetter(0)):
                made = (run.nodes, run.repeat, identify_command(run.command))
                again[cell.side] += first.setdefault(made, sitting) < sitting
        repeated += [block] if again.total() > before else []
    sides = [side for side, runs in again.items() if runs]
    # Those on both sides of an event were never one experiment.
    if sides and not evidence.layout.facet.in_time:
        runs, percent = again.total(), significant(100 * evidence.figures.alpha)
        names = first_few(list(map(evidence.layout.facet.name_side, sides)), 3)
        whole = _whole_experiments(evidence, repeated)
        remedy = "run a new experiment, and compare it alone"
        if whole:
            remedy = f"compare one experiment alone: {evidence.command(experiment=whole[-1])}"
        if workload := _find_changed(evidence, repeated, sides):
            metric = evidence.figures.primary
            asked = {name: evidence.asked.get(name) for name in ("--experiment", "--where", "--metric")}
            history = write_command("history", asked, workload)
            remedy = f"{spoken(metric, None)} changed in the meantime, see `{history}`; {remedy}"
        yield Caveat(
            code="joined",
            text=f"{counted(runs, 'run')} of {names} {'repeats' if runs == 1 else 'repeat'} earlier ones: if made "
            f"after a look at those, more than {percent} % of cases have a false 'differs'",
            remedy=remedy,
        )


def _find_sittings(runs: Iterable[Run]) -> Counter[str]:
    """Return by run the number of longer pauses before it, of those whose start is known."""
    sittings: Counter[str] = Counter()
    pauses, until = 0, None
    for start, run in sorted(((run.started_at, run) for run in runs if run.started_at), key=itemgetter(0)):
        pauses += until is not None and start - until > _SHORTEST_LOOK
        until = max(until or start, run.ended_at or start)
        sittings[run.run_id] = pauses
    return sittings


def _find_changed(evidence: Evidence, blocks: Sequence[Block], sides: Sequence[str]) -> str | None:
    """Return the workload of the first cell whose figures changed in the course of time; None: none is shown to."""
    metric, series = evidence.figures.primary.name, []
    for block in blocks if metric in BY_NAME else ():
        for cell in (cell for cell in block.cells if cell.side in sides):
            runs = sorted((run for run in cell.runs if run.started_at), key=lambda run: (run.started_at, run.run_id))
            is_alike = len({(run.nodes, identify_command(run.command)) for run in runs}) == 1
            if is_alike and 2 * LEAST_PART <= len(runs) <= _MOST_TESTED:
                series.append((block.workload, evidence.facts.values(runs, metric)))
    for workload, values in series:
        if find_changes(values, alpha=evidence.figures.alpha / len(series)):
            return workload
    return None


def _whole_experiments(evidence: Evidence, blocks: Sequence[Block]) -> list[str]:
    """Return the experiments of several that have runs on two or more sides of each block, the largest last."""
    sizes = Counter(run.experiment for runs in evidence.sides.values() for run in runs)
    whole = []
    for experiment in sizes:
        sides = []
        for block in blocks:
            sides.append(sum(any(run.experiment == experiment for run in cell.runs) for cell in block.cells))
        if experiment is not None and min(sides) > 1:
            whole.append(experiment)
    return sorted(whole, key=sizes.__getitem__) if len(sizes) > 1 else []


def confounded(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where the sides of a block differ in a condition that is not compared."""
    facet = evidence.layout.facet
    for name in (name for name in CONDITIONS if name not in {facet.name, *facet.fixes, "device"}):
        values = next(filter(None, (_differing(block, name) for block in evidence.layout.blocks)), None)
        if values:
            known = all(getattr(run, name) is not None for runs in evidence.sides.values() for run in runs)
            is_facet = name in _FACET_NAMES and evidence.is_by_facet and (known or name == "limits")
            workloads = {block.workload for block in evidence.layout.blocks}
            alone = {"workload": workloads.pop()} if len(workloads) == 1 else {}
            instead = f", or {evidence.command(by=name, **alone)}" if is_facet else ""
            yield Caveat(
                code="confounded",
                text=f"the sides also differ in {name}: {' / '.join(map(', '.join, values))}",
                remedy=f"run both sides with the same {name}{instead}",
            )


def _differing(block: Block, condition: str) -> list[list[str]] | None:
    """Return the values of a condition on each side of a block; None: all sides have the same."""
    sides = [cell.runs for cell in block.cells if cell.runs]
    values = [sorted({getattr(run, condition) or "none" for run in runs}) for runs in sides]
    return values if any(of_side != values[0] for of_side in values) else None


def find_undeclared(block: Block, facet: Facet) -> list[tuple[str, tuple[tuple[str, ...], ...]]]:
    """Return the arguments in which the commands of a block differ and that are not compared, with their values."""
    found = differing_arguments([[run.command for run in cell.runs] for cell in block.cells if cell.runs])
    return [pair for pair in found if pair[0].lstrip("-") not in facet.arguments]


def find_differing(block: Block, facet: Facet) -> list[tuple[str, tuple[tuple[str, ...], ...]]]:
    """Return those of which the sides of a block have other values, options first and lone words last."""
    between = [(name, values) for name, values in find_undeclared(block, facet) if len(set(values)) > 1]
    return sorted(between, key=lambda pair: (pair[0] == "", not pair[0].startswith("--")))


def different_commands(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where a program ran with different arguments that are not compared."""
    facet, blocks = evidence.layout.facet, evidence.layout.blocks
    for block in blocks if facet.names.isdisjoint({"command", "label:command"}) else ():
        between = find_differing(block, facet)
        # The same values on both sides differ within each.
        within_sides = [(name, values[:1]) for name, values in find_undeclared(block, facet)]
        shown = between or sorted(within_sides, key=lambda pair: pair[0] == "")
        if shown:
            more = f" and {counted(len(shown) - _SHOWN_ARGUMENTS, 'other')}" if shown[_SHOWN_ARGUMENTS:] else ""
            listed = "; ".join(write_argument(*pair) for pair in shown[:_SHOWN_ARGUMENTS])
            of = f" of {block.workload}" if len(blocks) > 1 else ""
            within = " within each side" if len(evidence.layout.sides) > 1 else ""
            # Texts of programs are no values to compare.
            named = next((name for name, _ in shown if can_name(name) and name != "-c"), None)
            by = f"argument:{named}" if named else "command"
            paired = any(test.block is block and test.pairs for test in evidence.figures.tests)
            what = "pairs have one command each, of which one may be faster and another slower"
            remedy = "that may be the difference" if between else what if paired else "that adds to the spread"
            if evidence.is_by_facet:
                is_alone = len(evidence.layout.sides) == 1 or facet.name == "workload"
                compared = by if between or is_alone else f"{facet.name},{by}"
                does = "compares it" if between else "separates these runs"
                remedy += f"; {evidence.command(by=compared, workload=block.workload)} {does}"
            yield Caveat(
                code="different_commands",
                text=f"the commands{of} differ{'' if between else within}: {listed}{more}",
                remedy=remedy,
            )
