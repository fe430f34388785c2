"""Warnings about tests, missing figures and prices."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from gpuagent_collector.compare.figures import OF_RUNS, Evidence, is_work_unlike
from gpuagent_collector.present.answer import Caveat
from gpuagent_collector.present.human import significant
from gpuagent_collector.prices.price import currencies_of
from gpuagent_collector.runs.arguments import USUAL_REPEATS
from gpuagent_collector.runs.cells import match_runs, tell_apart
from gpuagent_collector.runs.data import Facts, Run
from gpuagent_collector.runs.job_runs import are_jobs
from gpuagent_collector.runs.words import spoken
from gpuagent_collector.statistics.shift import least_pairs
from gpuagent_collector.statistics.summaries import outliers
from gpuagent_collector.statistics.verdicts import Verdict
from gpuagent_common.program_name import find_step_size

# Clients of a load, and not its server, set the pace in the runs {where}.
CLIENT_LIMITED = Caveat(
    code="client_limited",
    text="the load generator fell behind its schedule in {where}: latencies are partly its own",
    remedy="give serve-load more --clients and cores, or a lower load",
)


# What a program has learned, by the names under which its last values are results.
_LEARNED = ("loss", "accuracy")
# Closer ones may be chance, and are in the table of all metrics.
_FAR_SHARE = 0.1


def sequential(evidence: Evidence) -> Iterator[Caveat]:
    """Say that an experiment could stop early, and the level of its intervals."""
    if (looks := evidence.layout.looks) > 1:
        confidence = significant(100 * (1 - evidence.figures.alpha))
        yield Caveat(
            code="sequential",
            text=f"the experiment could stop after each of {looks} looks, planned before the first run",
            remedy=f"intervals are at {confidence} %, so that all looks together hold with 95 %",
        )


def too_few(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where no outcome could show a difference."""
    tests = evidence.figures.tests
    # What none can show alone, all of them together can.
    together = {one.sides for one in evidence.figures.overall if one.common and one.common.low}
    few = [test for test in tests if test.judgement.verdict is Verdict.TOO_FEW and test.sides not in together]
    if few and not evidence.figures.are_level:  # more runs would be as equal
        of_many = f", with {len(tests)} comparisons tested together" if len(tests) > 1 else ""
        first, second = few[0].baseline.runs, few[0].other.runs
        runs = "one run a side" if first == second == 1 else f"a difference between {first} and {second} runs"
        yield Caveat(
            code="n_too_small",
            text=f"{runs} can never be significant{of_many}",
            remedy="compare all jobs of two names, users or nodes: `collector compare --jobs --by user`"
            if are_jobs(evidence.layout.run_ids)
            else f"repeat the experiment with {_advised(evidence)} runs a side",
        )


def _advised(evidence: Evidence, fewest: int = 0) -> str:
    """Return the repeats that show the difference that is open, else those that can show any; not fewer than given."""
    least = least_pairs(len(evidence.figures.tests), evidence.figures.alpha)
    if evidence.needed and (evidence.needed.repeats is None or evidence.needed.repeats >= fewest):
        return evidence.needed.words
    return f"at least {max(USUAL_REPEATS, least)}"


def few_pairs(evidence: Evidence) -> Iterator[Caveat]:
    """Warn of pairs that are too few to be tested as such."""
    figures, few = evidence.figures, []
    for test in figures.tests if not figures.unpaired else ():
        pairs = match_runs(test.block.cell(test.baseline.side), test.block.cell(test.other.side))
        if pairs and test.pairs is None and test.judgement.verdict is not Verdict.TOO_FEW:
            few.append(len(pairs))
    if few:
        number = len(figures.tests)
        together = f" in {number} comparisons tested together" if number > 1 else ""
        yield Caveat(
            code="few_pairs",
            text=f"{few[0]} pairs of runs are too few for a test of pairs{together}, so the runs were tested as "
            "independent ones",
            # Fewer are no more than these pairs.
            remedy=f"repeat the experiment with {_advised(evidence, USUAL_REPEATS)} runs a side",
        )


def unmatched(evidence: Evidence) -> Iterator[Caveat]:
    """Warn of runs without the other one of their pair."""
    outside = [
        f"{tell_apart(test.block, evidence.layout.blocks)}: {test.baseline.runs - test.pairs} {test.baseline.side} and "
        f"{test.other.runs - test.pairs} {test.other.side}"
        for test in evidence.figures.tests
        if test.pairs and max(test.baseline.runs, test.other.runs) > test.pairs
    ]
    if outside:
        yield Caveat(
            code="unmatched",
            text=f"runs whose pair is incomplete, outside the test: {'; '.join(outside)}",
            remedy=f"medians include them; {evidence.command(unpaired='')} tests them too",
        )


def other_steps(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where steps are not compared, because those of a side are larger."""
    name = evidence.figures.primary.name
    is_of_runs = name.startswith(OF_RUNS)
    unlike = [run for block in evidence.layout.blocks if is_work_unlike(block, evidence.facts) for run in block.runs]
    if unlike and not _mixed_units(evidence) and (is_of_runs or name == "throughput"):
        yield say_other_steps(unlike, are_durations=is_of_runs)


def say_other_steps(runs: Iterable[Run], *, are_durations: bool) -> Caveat:
    """Return the warning that steps of these runs are other work; `are_durations`: so that whole runs are tested."""
    tested = ", and whole runs only compare over as many samples" if are_durations else ""
    option = find_step_size(run.command for run in runs)
    return Caveat(
        code="other_steps",
        text=f"the batch sizes differ, so steps/s say nothing{tested}",
        remedy=f"run again with `--items-per-step {option}`" if option else "count samples (docs/your-program.md)",
    )


def no_throughput(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where durations are tested for want of a throughput."""
    is_unlike = any(is_work_unlike(block, evidence.facts) for block in evidence.layout.blocks)
    if evidence.figures.fell_back and not is_unlike and not are_jobs(evidence.layout.run_ids):
        is_own = all(run.command for runs in evidence.sides.values() for run in runs)
        yield Caveat(
            code="no_throughput",
            text="no throughput is known on both sides, so the duration of whole runs was tested",
            remedy="if it prints its steps, name the line: `--pattern 'step {step} loss {loss}'` (docs/your-program.md)"
            if is_own
            else "report steps or the result `throughput` (docs/your-program.md)",
        )


def _mixed_units(evidence: Evidence) -> list[str]:
    """Return the units of throughput of the blocks that have several."""
    of_blocks = [evidence.facts.throughput_units(block.runs) for block in evidence.layout.blocks]
    return sorted({unit for units in of_blocks if len(units) > 1 for unit in units})


def mixed_units(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where throughputs of several units are not compared: a workload's are, those of two workloads are not."""
    figures, units = evidence.figures, _mixed_units(evidence)
    if units and (figures.fell_back or figures.primary.name == "throughput"):
        follows = ", so the duration of whole runs was tested" if figures.fell_back else ": their ratios mean nothing"
        yield Caveat(
            code="mixed_units",
            text=f"the runs' throughputs are in {' and in '.join(units)}{follows}",
            remedy="run both sides with the same steps and items, such as by one --pattern",
        )


def untested(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where a side lacks the tested metric."""
    metric = evidence.figures.primary.name
    # Of metrics that many runs have, the most telling one.
    common = ("throughput", "step_seconds", "run_seconds")
    other = next((name for name in common if evidence.has_everywhere(name)), None)
    remedy = f"{evidence.command(metric=other)} compares what all have" if other else "run it where that is measured"
    for block in evidence.layout.blocks:
        lacking = [cell.side for cell in block.cells if cell.runs and not evidence.facts.values(cell.runs, metric)]
        if lacking:
            concerned = "nothing is tested" if block.baseline in lacking else "not tested there"
            yield Caveat(
                code="untested",
                text=f"{tell_apart(block, evidence.layout.blocks)}: {concerned}, "
                f"because no run of {' or '.join(lacking)} reports {metric}",
                remedy=remedy,
            )


def far_from_repeats(evidence: Evidence) -> Iterator[Caveat]:
    """Warn of runs far from their repeats, which have the same command."""
    metric = evidence.figures.primary
    for block, cell in ((one, cell) for one in evidence.layout.blocks for cell in one.cells):
        name = block.workload if "all" in evidence.layout.facet.names else cell.side
        odd: list[Run] = []
        for command in dict.fromkeys(run.command for run in cell.runs):
            runs = [run for run in cell.runs if run.command == command and evidence.facts.has([run], metric.name)]
            far = outliers(evidence.facts.values(runs, metric.name))
            # More are a spread of their own, such as that of a coarse clock.
            odd += [runs[index] for index in far] if len(far) <= len(runs) / 4 else []
        if odd:
            yield Caveat(
                code="outliers",
                text=f"{spoken(metric, None)} is far from the others of {name} in repeat "
                + ", ".join(f"{run.repeat} ({run.run_id})" for run in odd),
                remedy="no run is removed, and medians tolerate it; check what else happened at that time",
            )


def programs_caveat(sides: Mapping[str, Iterable[Run]]) -> Caveat | None:
    """Return the warning that several programs measured the runs, of imported results; None: one did."""
    programs = {side: sorted({run.imported or "gpuagent" for run in runs}) for side, runs in sides.items()}
    if len({name for names in programs.values() for name in names}) < 2:
        return None
    listed = "; ".join(f"{side}: {' and '.join(names)}" for side, names in programs.items())
    return Caveat(
        code="programs",
        text=f"different programs measured the runs ({listed}), each by its own definitions",
        remedy="measure both sides with one program before you trust a small difference",
    )


def different_programs(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where imported results are compared with those of another program."""
    if found := programs_caveat(evidence.sides):
        yield found


def differing_answers(sides: Mapping[str, Iterable[Run]], facts: Facts) -> dict[str, tuple[int, int]]:
    """Return of each side but the first in how many of the fixed prompts its answers differ, and their number.

    An answer differs where none of the side's runs gave one that a run of the first side gave; sides whose runs have
    no such answers, or of other numbers of prompts, are left out.
    """
    said: dict[str, list[set[str]]] = {}
    for side, runs in sides.items():
        digests = [text.split() for run in runs if (text := facts.texts.get(run.run_id, {}).get("answers"))]
        if digests and len(set(map(len, digests))) == 1:
            said[side] = [set(of_prompt) for of_prompt in zip(*digests, strict=True)]
    first = said.pop(next(iter(sides), ""), [])
    return {
        side: (sum(not one & other for one, other in zip(first, answers, strict=True)), len(answers))
        for side, answers in said.items()
        if len(answers) == len(first)
    }


def answers_differ(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where servers gave other answers to the same prompts."""
    found = differing_answers(evidence.sides, evidence.facts)
    differing = [f"{side} in {number} of {prompts}" for side, (number, prompts) in found.items() if number]
    if differing:
        yield Caveat(
            code="answers_differ",
            text=f"answers differ from those of {evidence.layout.sides[0]}: {', '.join(differing)}",
            remedy="see whether these weights and this precision are meant; speed is of no use with wrong answers",
        )


def losses_differ(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where programs of two sides ended with losses or accuracies that are far apart in all runs."""
    learned = [name for name in _LEARNED if name != evidence.figures.primary.name]
    for test, name in product(evidence.figures.tests, learned):
        runs = [test.block.cell(figure.side).runs for figure in (test.baseline, test.other)]
        # Built-in workloads train for a time, if nothing else is asked for, and then the faster one gets further.
        are_programs = all(run.command for each in runs for run in each)
        first, second = (evidence.facts.values(each, name) for each in runs)
        if are_programs and first and second and _are_apart(first, second):
            _, values_of = evidence.layout.options
            known = {cell.side: evidence.facts.values(cell.runs, name) for cell in test.block.cells}
            last = {side: float(np.median(values)) for side, values in known.items() if values}
            ends = [min(last, key=last.__getitem__), max(last, key=last.__getitem__)]
            names = {side: values_of.get(side) or evidence.layout.facet.name_side(side) for side in ends}
            said = [f"{significant(last[side])} with {name}" for side, name in names.items()]
            of_workload = f" of {test.block.workload}" if len(evidence.layout.blocks) > 1 else ""
            yield Caveat(
                code="losses_differ",
                text=f"the last {name}{of_workload} is {' to '.join(said)}",
                remedy=f"see whether that is meant: {evidence.command(metric=name)}",
            )
            return


def _are_apart(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return whether all of several values of one side are above all of the other, and medians far apart."""
    middle = [float(np.median(values)) for values in (first, second)]
    is_far = abs(middle[0] - middle[1]) > _FAR_SHARE * max(map(abs, middle))
    return is_far and min(len(first), len(second)) > 1 and (min(first) > max(second) or min(second) > max(first))


def currencies(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where costs are not compared."""
    present = sorted(currencies_of(evidence.facts.derived))
    if len(present) > 1:
        yield Caveat(
            code="currencies",
            text=f"costs are in {', '.join(present)}: those in different currencies are not compared",
            remedy="state all prices in one currency",
        )
