"""Warnings that a reader must know before acting on a comparison, each with a remedy."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from gpuagent_collector.compare.caveats import figures, hardware, health, runs
from gpuagent_collector.compare.figures import Evidence, Observed
from gpuagent_collector.present.answer import Caveat
from gpuagent_collector.runs.cells import Block, Cell, Layout
from gpuagent_collector.runs.data import Facts, Run
from gpuagent_collector.runs.facets import find_facet

# Every check, the gravest warnings first: a screen shows only the first ones.
CHECKS: tuple[Callable[[Evidence], Iterator[Caveat]], ...] = (
    # Sides without figures, and figures that cannot be trusted or show nothing.
    runs.failed_sides,
    runs.confounded,
    runs.not_interleaved,
    hardware.foreign_load,
    hardware.shared_identity,
    figures.client_limited,
    figures.answers_differ,
    runs.left_processes,
    figures.mixed_units,
    runs.different_commands,
    figures.different_programs,
    health.memory_errors,
    health.xid_errors,
    figures.untested,
    figures.fell_back,
    # Other causes of a difference.
    hardware.different_architectures,
    runs.joined,
    health.throttled,
    health.different_clocks,
    health.set_clocks,
    hardware.shared_gpu,
    runs.overlapping,
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
    hardware.idle_gpu,
    health.narrow_links,
    health.impossible_readings,
    runs.gaps,
    runs.refused,
    runs.thinned,
    runs.short,
    runs.warming_up,
    runs.whole_run,
    runs.of_jobs,
    runs.energy_methods,
    figures.unpriced,
    figures.currencies,
    # Runs that are not compared.
    runs.left_out,
    runs.excluded,
    runs.cancelled,
    runs.unfinished,
)


# Those of what disturbs runs, whatever is made of their figures.
_DISTURBANCES: tuple[Callable[[Observed], Iterator[Caveat]], ...] = (
    hardware.foreign_load,
    health.memory_errors,
    health.xid_errors,
    health.throttled,
    hardware.shared_gpu,
    runs.overlapping,
)


def find_disturbances(sides: Mapping[str, Sequence[Run]], facts: Facts) -> Iterator[Caveat]:
    """Yield the warnings of what disturbed runs that no comparison has; sides are named as after the word `on`."""
    cells = tuple(Cell(side=side, runs=tuple(members), others={}) for side, members in sides.items())
    block = Block(workload="", parameters={}, held={}, cells=cells)
    layout = Layout(facet=find_facet("platform"), sides=tuple(sides), blocks=(block,), left_out=())
    for check in _DISTURBANCES:
        yield from check(Observed(layout=layout, facts=facts))


# Codes of warnings that concern tests, and differences between sides.
OF_TESTS = frozenset({"n_too_small", "untested", "no_throughput"})
OF_COMPARISONS = OF_TESTS | {
    "answers_differ",
    "confounded",
    "not_interleaved",
    "sequential",
    "joined",
    "few_nodes",
    "different_clocks",
    "set_clocks",
    "gpu_counts",
    "different_architectures",
    "different_specs",
    "energy_methods",
    "left_out",
}


def find_caveats(evidence: Evidence) -> tuple[Caveat, ...]:
    """Return every warning that applies."""
    found = (caveat for check in CHECKS for caveat in check(evidence))
    return tuple(caveat for caveat in found if evidence.layout.is_compared or caveat.code not in OF_COMPARISONS)
