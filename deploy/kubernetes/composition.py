"""Puts an overlay and what the user decides together, as one more kustomization on top."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from deploy.kubernetes.cluster import NAMESPACE
from deploy.kubernetes.lake import SCALE, Lake
from deploy.kubernetes.problems import MisuseError
from deploy.kubernetes.retention import Retention

HERE = Path(__file__).resolve().parent
IMAGES = ("gpuagent-agent", "gpuagent-collector")
COLLECTOR = "gpuagent-collector"
SERVICE = f"{COLLECTOR}.{NAMESPACE}.svc:50051"

_WITHOUT_NAMESPACE = {
    "target": {"kind": "Namespace"},
    "patch": '{"$patch": "delete", "kind": "Namespace", "metadata": {"name": "gpuagent"}}',
}


def overlays() -> list[str]:
    """Return the names of the overlays that there are."""
    return sorted(folder.parent.name for folder in HERE.glob("overlays/*/kustomization.yaml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What the user decides.

    Attributes:
        registry: where the images are, as us-docker.pkg.dev/project/repository; None: on the nodes themselves.
        tag: of the images; None: the version that the manifests are of.
        platform: what comparisons call this cluster; None: the manifests' own name.
        collector: HOST:PORT of one elsewhere; None: one in this cluster.
        cert_manager: whether cert-manager makes the certificates.
        mutual_tls: whether agents show a certificate, too.
        lake: what several collectors share; the overlay `scale` has several, others where this names a store.
        retention: how long the collectors of this cluster keep samples.
    """

    overlay: str
    registry: str | None = None
    tag: str | None = None
    platform: str | None = None
    collector: str | None = None
    cert_manager: bool = False
    mutual_tls: bool = False
    lake: Lake = field(default_factory=Lake)
    retention: Retention = field(default_factory=Retention)

    def __post_init__(self) -> None:
        """Check the overlay's name, and that the rest goes together.

        Raises:
            MisuseError: there is no such overlay, or one thing contradicts another.
        """
        if self.overlay not in overlays():
            raise MisuseError(f"there is no overlay {self.overlay!r}; there are: {', '.join(overlays())}")
        if self.collector and self.cert_manager:
            raise MisuseError(
                "COLLECTOR is one elsewhere, which has its certificate; leave CERTIFICATES=cert-manager out"
            )
        if self.collector and self.has_several_collectors:
            raise MisuseError("COLLECTOR is one elsewhere, which has its store; leave OVERLAY=scale and STORE out")
        if self.collector and self.retention != Retention():
            raise MisuseError("COLLECTOR is one elsewhere, which has its store; leave KEEP, KEEP_RAW, KEEP_SECONDS out")
        if not self.has_several_collectors and self.lake != Lake():
            raise MisuseError("DATA and REPLICAS are for several collectors on one lake; name its STORE as well")

    @property
    def has_several_collectors(self) -> bool:
        """Whether there are several in this cluster, on one lake."""
        return bool(self.lake.store) or self.overlay == SCALE

    @property
    def collectors(self) -> str:
        """What kubectl knows the collector, or the collectors, of this cluster by."""
        return f"{'deployment' if self.has_several_collectors else 'statefulset'}/{COLLECTOR}"

    def kustomization(self, folder: Path, *, with_namespace: bool = True) -> dict[str, Any]:
        """Return the kustomization that stands in `folder`."""
        return {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [_from(folder, HERE / "overlays" / self.overlay)],
            "components": [_from(folder, HERE / "components" / part) for part in self._parts()],
            "images": self._images(),
            "configMapGenerator": self._settings(),
            "patches": [*self._patches(), *([] if with_namespace else [_WITHOUT_NAMESPACE])],
            "replicas": self.lake.scaled(),
        }

    def _parts(self) -> list[str]:
        """Return the components, in an order in which each finds what it changes."""
        chosen = {
            "lake": self.has_several_collectors and self.overlay != SCALE,
            "cert-manager": self.cert_manager,
            "mutual-tls": self.mutual_tls,
            "mutual-tls-cert-manager": self.mutual_tls and self.cert_manager,
            "external-collector": self.collector,
        }
        return [part for part, is_chosen in chosen.items() if is_chosen]

    def _patches(self) -> Iterator[dict[str, Any]]:
        """Yield what changes in single objects; what thins out is the compaction of a lake, or else the collector."""
        keeping = self.retention.arguments()
        if self.has_several_collectors:
            yield from _patch("ConfigMap", "gpuagent-lake", self.lake.changes())
            yield from _patch("CronJob", "gpuagent-compact", _added("/spec/jobTemplate/spec/template", keeping))
        else:
            yield from _patch("StatefulSet", COLLECTOR, _added("/spec/template", keeping))

    def _images(self) -> list[dict[str, str]]:
        name = {name: {"newName": f"{self.registry.rstrip('/')}/{name}"} if self.registry else {} for name in IMAGES}
        tag = {"newTag": self.tag} if self.tag else {}
        return [{"name": each, **name[each], **tag} for each in IMAGES if name[each] or tag]

    def _settings(self) -> list[dict[str, Any]]:
        given = {"platform": self.platform, "collector": self.collector}
        literals = [f"{name}={value}" for name, value in given.items() if value]
        merged = {"name": "gpuagent-agent", "namespace": NAMESPACE, "behavior": "merge", "literals": literals}
        return [merged] if literals else []


@contextmanager
def composed(deployment: Deployment, *, with_namespace: bool = True) -> Iterator[Path]:
    """Yield a folder with the deployment's kustomization."""
    with TemporaryDirectory(prefix="gpuagent-deploy-") as name:
        folder = Path(name).resolve()
        kustomization = deployment.kustomization(folder, with_namespace=with_namespace)
        # JSON is YAML, too.
        (folder / "kustomization.yaml").write_text(json.dumps(kustomization, indent=2))
        yield folder


def _from(folder: Path, target: Path) -> str:
    """Return the way from one to the other: kustomize takes no absolute paths."""
    return os.path.relpath(target, folder)


def _patch(kind: str, name: str, changes: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    if changes:
        yield {"target": {"kind": kind, "name": name}, "patch": json.dumps(changes)}


def _added(template: str, arguments: Sequence[str]) -> Sequence[dict[str, Any]]:
    """Return the change that gives the container of a pod's template more arguments."""
    return [{"op": "add", "path": f"{template}/spec/containers/0/args/-", "value": each} for each in arguments]
