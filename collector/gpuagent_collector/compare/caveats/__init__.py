"""Warnings that a reader must know before acting on a comparison, each with a remedy."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuagent_collector.compare.caveats import figures, hardware, runs
from gpuagent_collector.compare.figures import Evidence, Observed
from gpuagent_collector.present.answer import Caveat
from gpuagent_collector.present.human import significant
from gpuagent_collector.prices.runs import why_unpriced
from gpuagent_collector.runs.cells import Block, Cell, Layout
from gpuagent_collector.runs.data import Facts, Run
from gpuagent_collector.runs.facets import find_facet
from gpuagent_common.text import counted


@dataclass(frozen=True, slots=True)
class Where:
    """A warning of runs that some fact names, or whose metric is above a bound; the text has them as {where}."""

    code: str
    fact: str | tuple[str, float]
    text: str | Callable[[Facts], str]
    remedy: str

    def __call__(self, evidence: Observed) -> Iterator[Caveat]:
        """Yield the warning if it applies."""
        if isinstance(self.fact, tuple):
            where = evidence.sides_above(*self.fact)
        else:
            where = evidence.sides_among(getattr(evidence.facts, self.fact))
        if where:
            text = self.text if isinstance(self.text, str) else self.text(evidence.facts)
            yield Caveat(code=self.code, text=text.replace("{where}", where), remedy=self.remedy)


# What disturbs runs, whatever is made of their figures.
_MEMORY_ERRORS = (
    Where(
        "ecc_errors_uncorrected",
        ("gpu_ecc_errors_uncorrected", 0),
        "memory errors occurred that could not be corrected in {where}",
        "do not trust these runs",
    ),
    Where(
        "memory_repair_pending",
        ("gpu_memory_repair_pending", 0),
        "bad memory of a GPU is waiting to be replaced in {where}",
        "reset the GPU: `nvidia-smi -r`",
    ),
    Where(
        "memory_repair_failed",
        ("gpu_memory_repair_failed", 0),
        "bad memory of a GPU could not be replaced in {where}",
        "have the GPU replaced",
    ),
)
_OVERLAPPING = Where(
    "overlapping",
    "neighbours",
    "other runs were on the same node at the same time in {where}",
    "run one after the other; `gpuagent run --with` loads a node on purpose",
)


def _longest_gap(facts: Facts) -> str:
    longest = max(facts.gap_seconds.values())
    return "samples are missing in {where}" + (f", for up to {significant(longest)} s" if longest else "")


# Every check, the gravest warnings first: a screen shows only the first ones.
CHECKS: tuple[Callable[[Evidence], Iterator[Caveat]], ...] = (
    # Prices were asked for.
    Where(
        "unpriced",
        "unpriced",
        lambda facts: f"the cost of {{where}} is unknown: {why_unpriced(facts)}",
        "see docs/cost.md",
    ),
    # Sides without figures, and figures that cannot be trusted or show nothing.
    runs.failed_sides,
    runs.untested_sides,
    runs.unfinished,
    figures.losses_differ,
    runs.confounded,
    runs.different_commands,
    figures.mixed_units,
    figures.other_steps,
    hardware.foreign_load,
    runs.joined,
    runs.not_interleaved,
    runs.left_out,
    hardware.shared_identity,
    Where("client_limited", ("client_limited", 0), figures.CLIENT_LIMITED.text, figures.CLIENT_LIMITED.remedy),
    figures.answers_differ,
    Where(
        "left_processes",
        "left",
        "programs left processes in the background, which were ended with them, in {where}",
        "the work may not have been done: let the program wait for them, as a shell does with `wait`",
    ),
    figures.different_programs,
    *_MEMORY_ERRORS,
    hardware.xid_errors,
    figures.untested,
    figures.no_throughput,
    # Other causes of a difference.
    hardware.different_architectures,
    hardware.throttled,
    hardware.different_clocks,
    hardware.set_clocks,
    hardware.shared_gpu,
    _OVERLAPPING,
    hardware.gpu_counts,
    hardware.different_specs,
    runs.unsuccessful,
    runs.one_node,
    runs.few_nodes,
    figures.sequential,
    figures.few_pairs,
    figures.unmatched,
    figures.far_from_repeats,
    # The sentence says it as well.
    figures.too_few,
    # Doubtful figures beside the primary one.
    Where(
        "idle_gpu",
        ("gpu_idle_percent", 50.0),
        "the GPU had no work for more than 50 % of the time in {where}",
        "the GPU is not the limit: check CPU, data loading and batch size",
    ),
    hardware.unused_gpu,
    hardware.narrow_links,
    hardware.impossible_readings,
    Where("gaps", "gap_seconds", _longest_gap, "means and peaks may miss that time; the table `gaps` has the reasons"),
    Where(
        "refused",
        "refused",
        lambda facts: f"{next(iter(facts.refused.values()))}, in {{where}}",
        "report numbers as docs/run-directory.md has them; a loss that is NaN is a failed run",
    ),
    Where(
        "thinned",
        "thinned",
        lambda facts: f"of the lines with metrics only one in {max(facts.thinned.values()):.0f} is stored in {{where}}",
        "last values are exact, curves have fewer points: print fewer lines, or report metrics as events",
    ),
    hardware.measure_short,
    runs.warming_up,
    runs.whole_run,
    runs.of_jobs,
    runs.energy_methods,
    figures.currencies,
    # Runs that are not compared.
    runs.excluded,
    runs.cancelled,
)

_DISTURBANCES: tuple[Callable[[Observed], Iterator[Caveat]], ...] = (
    hardware.foreign_load,
    *_MEMORY_ERRORS,
    hardware.xid_errors,
    hardware.throttled,
    hardware.shared_gpu,
    _OVERLAPPING,
)
# The metrics that they read.
OF_DISTURBANCES = (
    *("cpu_used_cores", "process_cpu_cores", "gpus", "gpu_throttled_percent", *hardware.CAUSES),
    *("gpu_other_processes", "gpu_other_memory_bytes", "gpu_other_utilization_percent"),
    *("gpu_ecc_errors_uncorrected", "gpu_memory_repair_pending", "gpu_memory_repair_failed"),
)


def find_disturbances(sides: Mapping[str, Sequence[Run]], facts: Facts) -> Iterator[Caveat]:
    """Yield the warnings of what disturbed runs that no comparison has; sides are named as after the word `on`."""
    cells = tuple(Cell(side=side, runs=tuple(members), others={}) for side, members in sides.items())
    block = Block(workload="", parameters={}, held={}, cells=cells)
    layout = Layout(facet=find_facet("platform"), sides=tuple(sides), blocks=(block,), left_out=())
    for check in _DISTURBANCES:
        yield from check(Observed(layout=layout, facts=facts))


# Their codes in words, as a list of what changed has them.
_IN_SHORT = {
    "foreign_load": "CPU load of others",
    "ecc_errors_uncorrected": "memory errors",
    "xid_errors": "GPU errors",
    "throttled": "throttled GPU clocks",
    "shared_gpu": "others on the GPU",
    "overlapping": "other runs on the node",
}


def compare_disturbances(before: Sequence[Run], after: Sequence[Run], facts: Facts) -> Iterator[str]:
    """Yield what disturbed shares of the runs before and after a change that differ by half or more."""
    both = [
        Counter(caveat.code for run in runs for caveat in find_disturbances({"": [run]}, facts))
        for runs in (before, after)
    ]
    for code, words in _IN_SHORT.items():
        first, then = (of_side[code] for of_side in both)
        if 2 * abs(first / len(before) - then / len(after)) >= 1:
            yield f"{words} ({first} of {counted(len(before), 'run')} before, {then} of {len(after)} after)"


# Codes of warnings that concern tests, and differences between sides.
OF_TESTS = frozenset({"mixed_units", "n_too_small", "untested", "no_throughput", "other_steps"})
OF_COMPARISONS = OF_TESTS | {
    *("answers_differ", "confounded", "not_interleaved", "sequential", "joined", "few_nodes", "gpu_counts", "left_out"),
    *("different_clocks", "set_clocks", "different_architectures", "different_specs", "energy_methods"),
    *("losses_differ", "sides_left_out"),
}


def find_caveats(evidence: Evidence) -> tuple[Caveat, ...]:
    """Return every warning that applies, what several blocks share once."""
    found = dict.fromkeys(caveat for check in CHECKS for caveat in check(evidence))
    return tuple(caveat for caveat in found if evidence.layout.is_compared or caveat.code not in OF_COMPARISONS)
