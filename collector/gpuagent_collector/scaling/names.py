"""Names of curves."""

import json
from collections.abc import Iterable

from gpuagent_collector.runs.words import distinguishing
from gpuagent_collector.scaling.curves import Curve
from gpuagent_collector.scaling.figures import CurveFigures
from gpuagent_collector.scaling.trials import Held

# Way to grow → its name.
KINDS = {
    Held.RANK_BATCH: "weak scaling",
    Held.TOTAL_SAMPLES: "weak scaling, total samples fixed",
    Held.GLOBAL_BATCH: "strong scaling",
    Held.UNKNOWN: "scaling, weak or strong not known",
}


def tell_apart(curve: Curve, curves: Iterable[CurveFigures]) -> str:
    """Return the curve's workload and the settings that distinguish it from the other curves."""
    own, others = settings_of(curve), [settings_of(other.curve) for other in curves]
    telling = distinguishing(own, (other for other in others if other["workload"] == own["workload"]))
    return " ".join([curve.settings.workload, *(f"{name}={value}" for name, value in telling.items())])


def settings_of(curve: Curve) -> dict[str, str]:
    """Return everything in which the runs of a curve agree, by name."""
    settings = curve.settings
    place = {
        "platform": settings.platform,
        "environment": settings.environment,
        "image": settings.image,
        "interference": settings.interference,
        "limits": settings.limits,
        "GPU": curve.gpus,
    }
    named = {"workload": settings.workload, **{name: value or "none" for name, value in place.items()}}
    parameters = {name: str(value) for name, value in json.loads(settings.parameters).items()}
    return named | parameters | {name: f"{amount:,}" for name, amount in settings.amounts}


def ranks_of(numbers: Iterable[int]) -> str:
    """Return numbers of ranks in words: 1 rank; 2, 4 ranks."""
    several = sorted(set(numbers))
    return f"{', '.join(map(str, several))} rank{'s' * (several != [1])}"
