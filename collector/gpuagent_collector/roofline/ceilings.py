"""The measured roofs of a run: those of its own device, or of the nearest one of the same model."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from gpuagent_collector.roofline.data import Trial
from gpuagent_collector.roofline.roofs import Roofs, measured_roofs
from gpuagent_collector.runs.data import Run

# The workload that measures roofs.
WORKLOAD = "ceilings"


class Nearness(IntEnum):
    """The relation of the device whose roofs were measured to those of the runs, the nearest last."""

    OTHER_NODE = 0
    SAME_NODE = 1
    SAME_DEVICE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """The roofs from a run of `ceilings`."""

    run: Run
    roofs: Roofs
    nearness: Nearness


def find_ceilings(trials: Sequence[Trial], measured: Iterable[Trial]) -> Ceilings | None:
    """Return the newest roofs of the nearest device of the model that the trials ran on; None: no roofs were measured.

    Args:
        trials: runs on one model of device; at least one.
        measured: runs of `ceilings`, oldest first. Quick tests are left out.
    """
    alike = [one for one in measured if one.device == trials[0].device and "quick" not in one.figures]
    ranked = sorted(
        ((_nearness(one, trials), number, one) for number, one in enumerate(alike)), key=lambda one: one[:2]
    )
    if not ranked:
        return None
    nearness, _, nearest = ranked[-1]
    return Ceilings(run=nearest.run, roofs=measured_roofs(nearest.figures), nearness=nearness)


def _nearness(measured: Trial, trials: Sequence[Trial]) -> Nearness:
    if any(measured.device_ids & trial.device_ids for trial in trials):
        return Nearness.SAME_DEVICE
    if not any(measured.node_ids & trial.node_ids for trial in trials):
        return Nearness.OTHER_NODE
    # A node has processors of one kind, and threads of either run may be on any of them.
    on_processor = not measured.device_ids and not any(trial.device_ids for trial in trials)
    return Nearness.SAME_DEVICE if on_processor else Nearness.SAME_NODE
