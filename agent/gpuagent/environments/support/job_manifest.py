"""The manifests of a workload's Job: followed by the agent of its node, or measuring itself."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuagent.environments.environment import Image, Job
from gpuagent.environments.support.common import (
    cache_directory,
    user_name,
    variables,
    working_directory,
    writable_places,
)

# Of the name of a Job: a label of its pods has 63, and the host name of each also has its number.
_NAME_CHARACTERS = 60

_GRACE_SECONDS = 10
# The cluster itself deletes an ended Job after this, should nobody else have.
_KEPT_SECONDS = 3600

# Where a pod that measures itself has gpuagent, its spool and its settings.
FOLDER = Path("/gpuagent")
SETTINGS = FOLDER / "settings"
# An ended program's last samples may take this long to reach the collector.
DELIVER_SECONDS = 60
SELF_GRACE_SECONDS = _GRACE_SECONDS + DELIVER_SECONDS + 10
# The driver's libraries are not among gpuagent's own: the image's usual places follow.
LOADER = (str(FOLDER / "ld.so"), "--library-path", f"{FOLDER}/lib:/usr/local/nvidia/lib64:/usr/lib64")

# A node that is gone ends the run after this, not after the cluster's five minutes.
_NODE_GONE_SECONDS = 30

# Where ranks on several nodes meet, in the first pod.
_MEETING_PORT = 29400

# In a pod of OpenShift: the security context constraint that admitted it.
SCC_VARIABLE = "OPENSHIFT_SCC"

_PASSED_VARIABLES = ("GPUAGENT_DEBUG", "OMP_NUM_THREADS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A Job's part of its cluster.

    Attributes:
        node: the name of the node to run on; None: any.
        gpus: the number of GPUs to request, of those that `gpu_resource` names.
        tolerations: of taints, besides that of `gpu_resource`.
        claims: volumes with data: the claim's name, the path in the pod, and whether it is read-only.
        pod: further fields of the pod's specification.
        agent_image: the image that a pod which measures itself takes gpuagent from.
    """

    node: str | None
    gpus: int
    gpu_resource: str = "nvidia.com/gpu"
    tolerations: Sequence[Mapping[str, Any]] = ()
    claims: Sequence[tuple[str, str, bool]] = ()
    pod: Mapping[str, Any] = field(default_factory=dict)
    agent_image: str = ""


def job_name(run_id: str) -> str:
    """Return the name of a run's Job: lower-case letters, digits and '-'. The unique end of the identity stays."""
    prefix = "gpuagent-"
    return prefix + re.sub(r"[^a-z0-9]+", "-", run_id.lower())[len(prefix) - _NAME_CHARACTERS :].strip("-")


def meeting_host(run_id: str) -> str:
    """Return the name of the first pod of a run on several nodes, which its Service gives it."""
    name = job_name(run_id)
    return f"{name}-0.{name}"


def meeting_point(run_id: str) -> str:
    """Return HOST:PORT where the ranks of a run on several nodes meet."""
    return f"{meeting_host(run_id)}:{_MEETING_PORT}"


def job_manifest(job: Job, image: Image, site: Site) -> dict[str, Any]:
    """Return the manifest of a Job with a pod for each node, which is never restarted."""
    labels = {"app.kubernetes.io/managed-by": "gpuagent"}
    if job.nodes == 1:
        pods: dict[str, Any] = {"backoffLimit": 0}
    else:
        # One that fails leaves the others to end by themselves, as on nodes without a cluster.
        pods = {
            "completionMode": "Indexed",
            "completions": job.nodes,
            "parallelism": job.nodes,
            "backoffLimitPerIndex": 0,
        }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job_name(job.run_id), "labels": labels},
        "spec": {
            **pods,
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": pod_spec(job, image, site)},
        },
    }


def service_manifest(run_id: str) -> dict[str, Any]:
    """Return the manifest of the Service by which the pods of a run on several nodes find each other."""
    name = job_name(run_id)
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"job-name": name}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def pod_spec(job: Job, image: Image, site: Site) -> dict[str, Any]:
    """Return the specification of a job's pod."""
    own = _followed(job, site) if job.elsewhere is None else _self_measuring(job, site)
    cpus = {} if job.limits.cpus is None else {"cpu": f"{job.limits.cpus:g}"}
    memory = {} if job.limits.memory_bytes is None else {"memory": str(job.limits.memory_bytes)}
    limits = {**cpus, **memory, **({site.gpu_resource: str(site.gpus)} if site.gpus else {})}
    container = {
        "name": "workload",
        "image": image.name,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"limits": limits, "requests": limits} if limits else {},
        **own.container,
        "volumeMounts": [
            *own.mounts,
            {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108
            *({"name": f"claim-{n}", "mountPath": path, "readOnly": ro} for n, (_, path, ro) in enumerate(site.claims)),
        ],
    }
    # The affinity of a DaemonSet's pods: a node's label may differ from its name.
    this_node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [site.node]}]}
    only = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [this_node]}}
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **({"affinity": {"nodeAffinity": only}} if site.node else {}),
        "tolerations": [{"key": site.gpu_resource, "operator": "Exists"}, *own.tolerations, *site.tolerations],
        **own.pod,
        "containers": [container],
        "volumes": [
            *own.volumes,
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
            *(
                {"name": f"claim-{n}", "persistentVolumeClaim": {"claimName": name, "readOnly": ro}}
                for n, (name, _, ro) in enumerate(site.claims)
            ),
        ],
        **site.pod,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Own:
    """The parts in which the two ways differ."""

    container: Mapping[str, Any]
    pod: Mapping[str, Any]
    mounts: Sequence[Mapping[str, Any]]
    volumes: Sequence[Mapping[str, Any]]
    tolerations: Sequence[Mapping[str, Any]] = ()


def _followed(job: Job, site: Site) -> _Own:  # noqa: ARG001 - as the other
    """Return the parts of a pod that the agent follows.

    Directories are the node's own, at the same paths; an agent in a pod needs them mounted from the node.
    """
    cache = cache_directory("kubernetes")
    writable = [cache, *writable_places(job)]
    places = [*writable, *(place for place in job.data if place not in writable)]
    volumes = []
    for index, place in enumerate(places):
        kind = "File" if place.is_file() else "Directory"
        volumes.append({"name": f"place-{index}", "hostPath": {"path": str(place), "type": kind}})
    return _Own(
        container={
            "command": [_literal(word) for word in job.program],
            "workingDir": str(working_directory(job)),
            "env": [{"name": name, "value": _literal(value)} for name, value in variables(job, cache).items()],
        },
        pod={
            "terminationGracePeriodSeconds": _GRACE_SECONDS,
            # So that files in the run directory belong to the agent's user.
            "securityContext": {"runAsUser": os.getuid(), "runAsGroup": os.getgid()},
        },
        mounts=[
            {"name": volume["name"], "mountPath": str(place), "readOnly": place not in writable}
            for volume, place in zip(volumes, places, strict=True)
        ],
        volumes=volumes,
    )


def _self_measuring(job: Job, site: Site) -> _Own:
    """Return the parts of a pod with gpuagent beside the program, which any restricted namespace admits."""
    user = job.elsewhere.user if job.elsewhere else None
    passed = {name: job.variables[name] for name in _PASSED_VARIABLES if name in job.variables}
    named = {"GPUAGENT_LOADER": " ".join(LOADER), "HOME": f"{FOLDER}/home", "USER": user_name(), **passed}
    pod, ranks = _among_others(job)
    fields = {"GPUAGENT_NODE_NAME": "spec.nodeName", "POD_NAME": "metadata.name"}
    fields |= {"POD_NAMESPACE": "metadata.namespace", "POD_UID": "metadata.uid"}
    if job.nodes > 1:
        fields["PET_NODE_RANK"] = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    fields[SCC_VARIABLE] = "metadata.annotations['openshift.io/scc']"
    held = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    mount = {"name": "gpuagent", "mountPath": str(FOLDER)}
    carry = {
        "name": "gpuagent",
        "image": site.agent_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-I", "-m", "gpuagent.pod.carry", str(FOLDER)],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}},
        "securityContext": held,
        "volumeMounts": [mount],
    }
    ids = {} if user is None else {"runAsUser": user, "runAsGroup": user, "fsGroup": user}
    restricted = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    gone = ({"key": f"node.kubernetes.io/{state}", "operator": "Exists"} for state in ("unreachable", "not-ready"))
    return _Own(
        container={
            "command": [
                *LOADER,
                f"{FOLDER}/python/bin/python3",
                "-I",
                "-S",
                f"{FOLDER}/packages/gpuagent/pod/measure.py",
            ],
            "env": [
                *({"name": name, "value": _literal(value)} for name, value in (named | ranks).items()),
                *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
            ],
            "securityContext": held,
        },
        pod={
            "terminationGracePeriodSeconds": SELF_GRACE_SECONDS,
            "securityContext": {**restricted, **ids, **({"fsGroupChangePolicy": "OnRootMismatch"} if ids else {})},
            "initContainers": [carry],
            **pod,
        },
        mounts=[mount, {"name": "settings", "mountPath": str(SETTINGS), "readOnly": True}],
        volumes=[
            {"name": "gpuagent", "emptyDir": {}},
            {"name": "settings", "secret": {"secretName": job_name(job.run_id)}},
        ],
        tolerations=[{**each, "effect": "NoExecute", "tolerationSeconds": _NODE_GONE_SECONDS} for each in gone],
    )


def _among_others(job: Job) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the fields and variables of a pod by which ranks on several nodes meet; a node has one such pod.

    torchrun takes its options from variables.
    """
    if job.nodes == 1:
        return {}, {}
    name = job_name(job.run_id)
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"job-name": name}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    options = {"NNODES": str(job.nodes), "MASTER_ADDR": meeting_host(job.run_id), "MASTER_PORT": str(_MEETING_PORT)}
    return {"subdomain": name, "affinity": affinity}, {f"PET_{option}": value for option, value in options.items()}


def _literal(text: str) -> str:
    """Return `text` escaped for Kubernetes, which reads $(NAME) as a variable and $$ as $."""
    return text.replace("$", "$$")
