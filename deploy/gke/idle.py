"""The watch for an idle cluster; GKE itself has none."""

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
    """Return the number of pods in `kubectl get pods --output=json` that hold or request GPUs."""
    return sum(_wants_gpu(pod) for pod in answer["items"] if pod["status"].get("phase") not in _ENDED)


def _wants_gpu(pod: Any) -> bool:
    limits = [container.get("resources", {}).get("limits", {}) for container in pod["spec"]["containers"]]
    return any(int(limit.get(_GPU, 0)) > 0 for limit in limits)


def busy_pods(context: str) -> int | None:
    """Return the number of pods in a context's cluster that hold or request GPUs; None: no answer."""
    command = ["kubectl", f"--context={context}", "get", "pods", "--all-namespaces", "--output=json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        say(f"kubectl: {result.stderr.strip()}")
        return None
    return pods_with_gpus(json.loads(result.stdout))


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleWatch:
    """A watch that waits until no pod has used a GPU for a while.

    Attributes:
        minutes: length of the while.
        look: returns the number of pods that use GPUs; None: unknown, which never counts as idle.
        every_seconds: interval of the looks.
        clock: returns monotonic seconds.
        sleep: waits for a number of seconds.
    """

    minutes: float
    look: Callable[[], int | None]
    every_seconds: float = 60.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def wait(self) -> None:
        """Return once the cluster has been idle for `minutes`."""
        say(f"the cluster is deleted once no pod requests a GPU for {self.minutes:g} minutes; Ctrl-C keeps it")
        idle_since = self.clock()
        while self.clock() - idle_since < self.minutes * _SECONDS_PER_MINUTE:
            self.sleep(self.every_seconds)
            if self.look() != 0:
                idle_since = self.clock()
        say(f"idle for {self.minutes:g} minutes")
