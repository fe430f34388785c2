"""The energy of a run's GPUs. The view `energy` has it for each GPU, phase and step, with its method."""

from gpuagent_collector.metrics.metric import Better, StoredMetric
from gpuagent_collector.metrics.metric_sources import ENERGY, STEP_ENERGY


def _energy(name: str, title: str, reading: str, better: Better | None = None) -> StoredMetric:
    """Return the metric that is an energy of all the run's GPUs together."""
    return StoredMetric(
        name=name,
        title=title,
        unit="joules",
        group="Energy",
        better=better,
        source=ENERGY,
        reading=reading,
        in_part="sum({})",
        over_parts="sum",
    )


ENERGY_METRICS: tuple[StoredMetric, ...] = (
    # Of a measured phase of fixed length, less may only mean less work.
    _energy("gpu_energy_joules", "GPUs' energy", "counted_joules"),
    _energy("gpu_energy_per_item_joules", "GPUs' energy an item", "counted_joules / nullif(items, 0)", Better.LOWER),
    StoredMetric(
        name="gpu_energy_per_step_joules",
        title="GPUs' energy a step",
        unit="joules",
        group="Energy",
        better=Better.LOWER,
        source=STEP_ENERGY,
        reading="energy_joules",
        in_part="median({})",
        over_parts="sum",
    ),
    _energy("gpu_energy_run_joules", "GPUs' energy, whole run", "run_joules"),
)
