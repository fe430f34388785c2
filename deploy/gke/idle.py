"""Deletes a cluster that nobody uses, for as long as the script runs: GKE itself has nothing that does."""

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deploy.gcp.gcloud import say

_GPU = "nvidia.com/gpu"
_ENDED = ("Succeeded", "Failed")
_SECONDS_PER_MINUTE = 60


def pods_with_gpus(answer: Any) -> int:
    """Return how many pods in `kubectl get pods --output=json` hold GPUs or wait for some."""
    return sum(_wants_gpu(pod) for pod in answer["items"] if pod["status"].get("phase") not in _ENDED)


def _wants_gpu(pod: Any) -> bool:
    limits = [container.get("resources", {}).get("limits", {}) for container in pod["spec"]["containers"]]
    return any(int(limit.get(_GPU, 0)) > 0 for limit in limits)


def busy_pods(context: str) -> int | None:
    """Return how many pods of a context's cluster hold GPUs or wait for some; None: it did not answer."""
    command = ["kubectl", f"--context={context}", "get", "pods", "--all-namespaces", "--output=json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        say(f"kubectl: {result.stderr.strip()}")
        return None
    return pods_with_gpus(json.loads(result.stdout))


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleWatch:
    """Waits until no pod has used a GPU for a while.

    Attributes:
        minutes: of how long a while.
        look: how many pods use GPUs; None: not known, which is never taken for idle.
        every_seconds: how often to look.
        clock: seconds that only grow.
        sleep: waits for so many seconds.
    """

    minutes: float
    look: Callable[[], int | None]
    every_seconds: float = 60.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def wait(self) -> None:
        """Return when it has been idle for so long."""
        say(f"the cluster is deleted when no pod has asked for a GPU for {self.minutes:g} minutes; Ctrl-C keeps it")
        idle_since = self.clock()
        while self.clock() - idle_since < self.minutes * _SECONDS_PER_MINUTE:
            self.sleep(self.every_seconds)
            if self.look() != 0:
                idle_since = self.clock()
        say(f"idle for {self.minutes:g} minutes")
