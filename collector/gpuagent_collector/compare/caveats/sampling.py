"""Warnings about missing, short and different measurements."""

from collections.abc import Iterator, Mapping

from gpuagent_collector.compare.evidence import Evidence
from gpuagent_collector.output.document import Caveat
from gpuagent_collector.output.human import significant

# Methods of run_energy in words.
_ENERGY_METHODS: Mapping[str, str] = {
    "power_samples": "the driver's power readings",
    "power_instant": "polled power",
    "power_average_1s": "polled power, averaged over 1 s",
    "power_polled": "polled power of unknown kind",
    "counter": "the energy counter",
}


def gaps(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where samples are missing."""
    where = evidence.sides_where(lambda run: run.run_id in evidence.facts.gap_seconds)
    if where:
        longest = max(evidence.facts.gap_seconds.values())
        yield Caveat(
            code="gaps",
            text=f"samples are missing in {where}" + (f", for up to {significant(longest)} s" if longest else ""),
            remedy="means and peaks may miss that time; the table `gaps` has the reasons",
        )


def short(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where sensors are slower than the measured phase was long."""
    where = evidence.sides_where(lambda run: run.run_id in evidence.facts.short)
    if where:
        yield Caveat(
            code="measure_short",
            text=f"the measured phase was too short for sensors that average over a second in {where}",
            remedy="measure for at least 10 s before reading utilisation and power",
        )


def whole_run(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where start-up is part of the figures."""
    where = evidence.sides_where(lambda run: evidence.facts.value(run, "measure_seconds") is None)
    if where:
        yield Caveat(
            code="whole_run",
            text=f"no measured phase was reported in {where}: their figures are of the whole run, start-up included",
            remedy="report the phase `measure` through the run directory to leave start-up out",
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
