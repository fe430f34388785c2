"""The manifests of deploy/kubernetes as kubectl renders them, and what stands in them."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

KUBERNETES = Path(__file__).parents[2] / "deploy/kubernetes"
OVERLAYS = ("generic", "gke", "no-gpu", "openshift")
JOBS = ("workload", "torchrun")
KUSTOMIZATIONS = (*(f"overlays/{name}" for name in OVERLAYS), *(f"jobs/{name}" for name in JOBS))

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
        """What tests call it."""
        return f"{self.kustomization}: {self.kind}/{self.name}"


@cache
def render(kustomization: str) -> Sequence[Manifest]:
    """Return what a folder below deploy/kubernetes makes."""
    folder = KUBERNETES / kustomization
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), f"{kustomization}: {done.stderr}"
    # JSON has no dates and the like: what an API server gets.
    return tuple(json.loads(json.dumps(each)) for each in yaml.safe_load_all(done.stdout))


def one(kustomization: str, kind: str, name: str) -> Manifest:
    """Return the manifest of this kind and name."""
    (found,) = (each for each in render(kustomization) if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


def containers(*kustomizations: str) -> Iterator[Container]:
    """Yield the containers of these, those that only prepare others as well."""
    for kustomization in kustomizations:
        for manifest in render(kustomization):
            pod = manifest.get("spec", {}).get("template", {}).get("spec")
            for spec in (*pod.get("initContainers", ()), *pod["containers"]) if pod else ():
                yield Container(
                    kustomization=kustomization, name=spec["name"], kind=manifest["kind"], pod=pod, spec=spec
                )


def variables(container: Manifest) -> dict[str, str | None]:
    """Return a container's variables; None: the value comes from elsewhere."""
    return {each["name"]: each.get("value") for each in container.get("env", ())}
