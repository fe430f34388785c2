"""Warnings that a reader must know before acting on a comparison, each with a remedy."""

from collections.abc import Callable, Iterator

from gpuagent_collector.compare.caveats import figures, hardware, health, runs, sampling
from gpuagent_collector.compare.evidence import Evidence
from gpuagent_collector.output.document import Caveat

# Every check, in the order in which warnings are shown.
CHECKS: tuple[Callable[[Evidence], Iterator[Caveat]], ...] = (
    hardware.foreign_load,
    figures.too_few,
    figures.fell_back,
    figures.untested,
    runs.unsuccessful,
    runs.cancelled,
    runs.unfinished,
    runs.left_out,
    runs.one_node,
    runs.not_interleaved,
    runs.joined,
    runs.confounded,
    hardware.gpu_counts,
    hardware.different_specs,
    health.throttled,
    health.different_clocks,
    health.set_clocks,
    health.narrow_links,
    health.memory_errors,
    health.xid_errors,
    hardware.shared_gpu,
    runs.overlapping,
    hardware.idle_gpu,
    sampling.gaps,
    sampling.short,
    sampling.whole_run,
    sampling.energy_methods,
    figures.unpriced,
    figures.currencies,
    figures.far_from_repeats,
)


def find_caveats(evidence: Evidence) -> tuple[Caveat, ...]:
    """Return every warning that applies."""
    return tuple(caveat for check in CHECKS for caveat in check(evidence))
