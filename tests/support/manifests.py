"""The manifests of deploy/kubernetes as kubectl renders them, and what stands in them."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from deploy.kubernetes.composition import Deployment, Lake, Retention, compose

KUBERNETES = Path(__file__).parents[2] / "deploy/kubernetes"
OVERLAYS = ("generic", "gke", "no-gpu", "openshift", "scale")
JOBS = ("workload", "torchrun")
_LAKE = Lake(store="ducklake:postgres:host=db1 dbname=lake user=lake", data="s3://bucket/lake", replicas=5)
_KEPT = Retention(keep_raw="7d", keep="90d")
# What `make deploy-daemonset` puts together beyond the overlays.
COMPOSITIONS = {
    "launching": Deployment(overlay="generic", launch=True),
    "naming pods": Deployment(overlay="generic", pods=True),
    "mutual TLS": Deployment(overlay="generic", mutual_tls=True, retention=_KEPT),
    "openshift, a lake, mutual TLS by cert-manager": Deployment(
        overlay="openshift", lake=_LAKE, mutual_tls=True, cert_manager=True, retention=_KEPT
    ),
}

# All that is deployed for good.
CLUSTERS = (*(f"overlays/{name}" for name in OVERLAYS), *COMPOSITIONS)

KUSTOMIZATIONS = (*CLUSTERS, *(f"jobs/{name}" for name in JOBS))

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container in a rendered manifest.

    Attributes:
        pod: the pod's specification.
        spec: its own.
    """

    kustomization: str
    name: str
    kind: str
    pod: Manifest
    spec: Manifest

    @property
    def label(self) -> str:
        return f"{self.kustomization}: {self.kind}/{self.name}"


@cache
def render(kustomization: str) -> Sequence[Manifest]:
    """Return what a folder below deploy/kubernetes, or a composition, makes."""
    if kustomization in COMPOSITIONS:
        with compose(COMPOSITIONS[kustomization]) as folder:
            return _rendered(folder)
    return _rendered(KUBERNETES / kustomization)


def _rendered(folder: Path) -> Sequence[Manifest]:
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), f"{folder}: {done.stderr}"
    # JSON has no dates and the like: what an API server gets.
    return tuple(json.loads(json.dumps(each)) for each in yaml.safe_load_all(done.stdout))


def one(kustomization: str, kind: str, name: str) -> Manifest:
    (found,) = (each for each in render(kustomization) if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


def containers(*kustomizations: str) -> Iterator[Container]:
    """Yield the containers of these, those that only prepare others as well."""
    for kustomization in kustomizations:
        for manifest in render(kustomization):
            pod = pod_of(manifest)
            if pod is None:
                continue
            for spec in (*pod.get("initContainers", ()), *pod["containers"]):
                yield Container(
                    kustomization=kustomization, name=spec["name"], kind=manifest["kind"], pod=pod, spec=spec
                )


def pods(*kustomizations: str) -> Iterator[Container]:
    """Yield the container of each pod that does its work."""
    return (each for each in containers(*kustomizations) if each.spec is each.pod["containers"][0])


def pod_of(manifest: Manifest) -> Manifest | None:
    """Return the specification of the pods that a manifest makes; None: it makes none."""
    specification = manifest.get("spec", {})
    makes = specification.get("jobTemplate", {}).get("spec", specification)
    found: Manifest | None = makes.get("template", {}).get("spec")
    return found


def jobs_of(manifest: Manifest) -> Manifest:
    found: Manifest = manifest.get("spec", {}).get("jobTemplate", {}).get("spec", {})
    return found


def variables(container: Manifest) -> dict[str, str | None]:
    """Return a container's variables; None: the value comes from elsewhere."""
    return {each["name"]: each.get("value") for each in container.get("env", ())}
