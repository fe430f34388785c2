"""Tells runs of GPUs that are lost while they run."""

import json
from collections.abc import Mapping

from gpuagent.sources.source import ActiveRuns, Reading


class Losses:
    """Makes events of the active runs: one when a GPU of the node is lost, one when it is back.

    Every active run is told, whether it uses the GPU or not: run_devices says which did. A run that begins while a GPU
    is lost is told then.
    """

    def __init__(self, runs: ActiveRuns) -> None:
        self._runs = runs
        self._told: set[tuple[str, str]] = set()

    def news(self, lost: Mapping[str, str]) -> list[Reading]:
        """Return the events that are new.

        Args:
            lost: UUID of each GPU that is lost now, and what NVML says of it.
        """
        if not lost and not self._told:
            return []
        active = {run_id for run_id, _ in self._runs.processes()}
        told, self._told = self._told, {(run_id, uuid) for run_id in active for uuid in lost}
        gone = [_event(run_id, "gpu_lost", uuid, {"reason": lost[uuid]}) for run_id, uuid in sorted(self._told - told)]
        back = [_event(run_id, "gpu_found", uuid) for run_id, uuid in sorted(told - self._told) if run_id in active]
        return gone + back


def _event(run_id: str, event: str, uuid: str, detail: Mapping[str, str] | None = None) -> Reading:
    return Reading(
        table="run_events",
        key=f"{run_id}/{event}/{uuid}",
        values={"run_id": run_id, "event": event, "name": uuid, "detail": json.dumps(detail) if detail else None},
    )
