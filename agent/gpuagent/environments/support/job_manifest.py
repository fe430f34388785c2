"""The manifest of a Job that runs a workload beside the agent."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuagent.environments.environment import Image, Job
from gpuagent.environments.support.inside import cache_directory, variables, working_directory, writable_places

# Of the name of a Job, since its pods have it as a label.
_NAME_CHARACTERS = 63

_GRACE_SECONDS = 10
# The cluster itself deletes an ended Job after this, should nobody else have.
_KEPT_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A Job's part of its cluster.

    Attributes:
        node: the name of the node to run on.
        gpus: the number of GPUs to request, of those that `gpu_resource` names.
        pod: further fields of the pod's specification.
    """

    node: str
    gpus: int
    gpu_resource: str = "nvidia.com/gpu"
    pod: Mapping[str, Any] = field(default_factory=dict)


def job_name(run_id: str) -> str:
    """Return the name of a run's Job: lower-case letters, digits and '-'. The unique end of the identity stays."""
    prefix = "gpuagent-"
    return prefix + re.sub(r"[^a-z0-9]+", "-", run_id.lower())[len(prefix) - _NAME_CHARACTERS :].strip("-")


def job_manifest(job: Job, image: Image, site: Site) -> dict[str, Any]:
    """Return the manifest of a Job with one pod, which is never restarted, on the agent's node.

    Directories are the node's own, at the same paths; an agent in a pod needs them mounted from the node.
    """
    labels = {"app.kubernetes.io/managed-by": "gpuagent"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job_name(job.run_id), "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": _pod(job, image, site)},
        },
    }


def _pod(job: Job, image: Image, site: Site) -> dict[str, Any]:
    cache = cache_directory("kubernetes")
    writable = [cache, *writable_places(job)]
    places = [*writable, *(place for place in job.data if place not in writable)]
    volumes = [_volume(index, place) for index, place in enumerate(places)]
    mounts = [
        {"name": volume["name"], "mountPath": str(place), "readOnly": place not in writable}
        for volume, place in zip(volumes, places, strict=True)
    ]
    # The affinity of a DaemonSet's pods: a node's label may differ from its name.
    this_node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [site.node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [this_node]}}
    cpus = {} if job.limits.cpus is None else {"cpu": f"{job.limits.cpus:g}"}
    memory = {} if job.limits.memory_bytes is None else {"memory": str(job.limits.memory_bytes)}
    limits = {**cpus, **memory, **({site.gpu_resource: str(site.gpus)} if site.gpus else {})}
    container = {
        "name": "workload",
        "image": image.name,
        "imagePullPolicy": "IfNotPresent",
        "command": [_literal(word) for word in job.program],
        "workingDir": str(working_directory(job)),
        "env": [{"name": name, "value": _literal(value)} for name, value in variables(job, cache).items()],
        "resources": {"limits": limits, "requests": limits} if limits else {},
        "volumeMounts": [*mounts, {"name": "shared-memory", "mountPath": "/dev/shm"}],  # noqa: S108
    }
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "affinity": {"nodeAffinity": required},
        "tolerations": [{"key": site.gpu_resource, "operator": "Exists"}],
        # So that files in the run directory belong to the agent's user.
        "securityContext": {"runAsUser": os.getuid(), "runAsGroup": os.getgid()},
        "containers": [container],
        "volumes": [*volumes, {"name": "shared-memory", "emptyDir": {"medium": "Memory"}}],
        **site.pod,
    }


def _volume(index: int, place: Path) -> dict[str, Any]:
    kind = "File" if place.is_file() else "Directory"
    return {"name": f"place-{index}", "hostPath": {"path": str(place), "type": kind}}


def _literal(text: str) -> str:
    """Return `text` escaped for Kubernetes, which reads $(NAME) as a variable."""
    return text.replace("$(", "$$(")
