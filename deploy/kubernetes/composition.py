"""The kustomization of a deployment, on top of an overlay."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from deploy.kubernetes.cluster import NAMESPACE
from deploy.kubernetes.problems import MisuseError

# The overlay that always has several collectors; the others have them if a store is named.
SCALE = "scale"

_STORE = "ducklake:postgres:"
_DATA = "s3://"
_PASSWORD = re.compile(r"password\s*=|//[^/@]*:[^/@]*@", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """A store that several collectors share.

    Attributes:
        store: the catalog, as for `collector serve`; None: not given.
        data: the place of the files, as for `collector serve`; None: not given.
        replicas: number of collectors; None: that of the manifests.
    """

    store: str | None = None
    data: str | None = None
    replicas: int | None = None

    def __post_init__(self) -> None:
        """Check the settings. Raises MisuseError where pods cannot share this store, or it has a password."""
        if self.store and not self.store.startswith(_STORE):
            raise MisuseError(f"STORE takes a catalog in PostgreSQL, such as '{_STORE}host=db1 dbname=lake user=lake'")
        if self.store and _PASSWORD.search(self.store):
            raise MisuseError("STORE has a password, and everybody in the namespace can read it; put it into LAKE_FILE")
        if self.data and not self.data.startswith(_DATA):
            raise MisuseError(f"DATA takes a bucket, such as {_DATA}bucket/path; a pod deletes its folders")
        if self.replicas is not None and self.replicas < 1:
            raise MisuseError(f"REPLICAS takes a whole number of at least 1; not {self.replicas}")

    def need_store(self) -> None:
        """Check that the collectors have a store. Raises MisuseError where they have none."""
        if not (self.store and self.data):
            raise MisuseError(
                f"several collectors need a shared store: STORE='{_STORE}host=… dbname=… user=…' and "
                f"DATA={_DATA}bucket/path; see docs/deploy/scale.md"
            )

    def changes(self) -> Sequence[dict[str, Any]]:
        """Return a JSON patch of the ConfigMap that collectors and compaction read."""
        settings = {"/data/store": self.store, "/data/data": self.data}
        return [{"op": "replace", "path": path, "value": value} for path, value in settings.items() if value]

    def scaled(self) -> Sequence[dict[str, Any]]:
        """Return the `replicas` of a kustomization."""
        return [{"name": "gpuagent-collector", "count": self.replicas}] if self.replicas else []


_TIME = re.compile(r"[1-9]\d{0,4}[hdw]")
_HOURS = {"h": 1, "d": 24, "w": 168}


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Times such as 12h, 7d or 52w; None: for ever.

    Attributes:
        keep_raw: age at which samples are thinned out to one row a second.
        keep_seconds: age at which they are thinned out to one row a minute.
        keep: age at which samples and steps are removed.
    """

    keep_raw: str | None = None
    keep_seconds: str | None = None
    keep: str | None = None

    def __post_init__(self) -> None:
        """Check the times. Raises MisuseError where one is malformed, or not longer than the one before it."""
        for name, time in self._given().items():
            if not _TIME.fullmatch(time):
                raise MisuseError(f"{name.upper()} takes a number and h, d or w, such as 90d; not {time!r}")
        hours = {name.upper(): int(time[:-1]) * _HOURS[time[-1]] for name, time in self._given().items()}
        for (name, age), (longer, longer_age) in pairwise(hours.items()):
            if age >= longer_age:
                raise MisuseError(f"{name} must be less than {longer}")

    def arguments(self) -> Sequence[str]:
        """Return the command's options."""
        return [f"--{name.replace('_', '-')}={time}" for name, time in self._given().items()]

    def _given(self) -> dict[str, str]:
        return {name: time for name, time in asdict(self).items() if time is not None}


HERE = Path(__file__).resolve().parent
IMAGES = ("gpuagent-agent", "gpuagent-collector")
COLLECTOR = "gpuagent-collector"
SERVICE = f"{COLLECTOR}.{NAMESPACE}.svc:50051"

_WITHOUT_NAMESPACE = {
    "target": {"kind": "Namespace"},
    "patch": '{"$patch": "delete", "kind": "Namespace", "metadata": {"name": "gpuagent"}}',
}

_AGENTS = {"kind": "DaemonSet", "name": "gpuagent-agent"}
_AGENT = "spec.template.spec.containers.[name=agent]"
_AGENT_IMAGE = {
    "source": {**_AGENTS, "fieldPath": f"{_AGENT}.image"},
    "targets": [{"select": _AGENTS, "fieldPaths": [f"{_AGENT}.env.[name=AGENT_IMAGE].value"]}],
}


def overlays() -> list[str]:
    """Return the names of the overlays."""
    return sorted(folder.parent.name for folder in HERE.glob("overlays/*/kustomization.yaml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The user's settings of a deployment.

    Attributes:
        registry: of the images, such as us-docker.pkg.dev/project/repository; None: on the nodes themselves.
        tag: of the images; None: the version of the manifests.
        platform: the cluster's name in comparisons; None: that of the manifests.
        collector: HOST:PORT of a collector elsewhere; None: one in this cluster.
        cert_manager: whether cert-manager makes the certificates.
        mutual_tls: whether agents need a client certificate.
        launch: whether agents make Jobs for `collector launch`.
        pods: whether agents read names and owners of pods from the API server.
        lake: the store of several collectors; the overlay `scale` always has several, others if this has a store.
        retention: of the collectors in this cluster.
    """

    overlay: str
    registry: str | None = None
    tag: str | None = None
    platform: str | None = None
    collector: str | None = None
    cert_manager: bool = False
    mutual_tls: bool = False
    launch: bool = False
    pods: bool = False
    lake: Lake = field(default_factory=Lake)
    retention: Retention = field(default_factory=Retention)

    def __post_init__(self) -> None:
        """Check the settings. Raises MisuseError if the overlay does not exist, or settings contradict each other."""
        if self.overlay not in overlays():
            raise MisuseError(f"there is no overlay {self.overlay!r}; there are: {', '.join(overlays())}")
        if self.collector and self.cert_manager:
            raise MisuseError("COLLECTOR elsewhere has its own certificate; leave CERTIFICATES=cert-manager out")
        if self.collector and self.has_several_collectors:
            raise MisuseError("COLLECTOR elsewhere has its own store; leave OVERLAY=scale and STORE out")
        if self.collector and self.retention != Retention():
            raise MisuseError("COLLECTOR elsewhere has its own store; leave KEEP, KEEP_RAW, KEEP_SECONDS out")
        if not self.has_several_collectors and self.lake != Lake():
            raise MisuseError("DATA and REPLICAS are for several collectors on one lake; give STORE as well")

    @property
    def has_several_collectors(self) -> bool:
        """True if this cluster has several collectors on one lake."""
        return bool(self.lake.store) or self.overlay == SCALE

    @property
    def collectors(self) -> str:
        """The name of this cluster's collectors for kubectl."""
        return f"{'deployment' if self.has_several_collectors else 'statefulset'}/{COLLECTOR}"

    def kustomization(self, folder: Path, *, with_namespace: bool = True) -> dict[str, Any]:
        """Return the kustomization for `folder`."""
        name = {name: {"newName": f"{self.registry.rstrip('/')}/{name}"} if self.registry else {} for name in IMAGES}
        tag = {"newTag": self.tag} if self.tag else {}
        given = {"platform": self.platform, "collector": self.collector}
        literals = [f"{name}={value}" for name, value in given.items() if value]
        merged = {"name": "gpuagent-agent", "namespace": NAMESPACE, "behavior": "merge", "literals": literals}
        return {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [os.path.relpath(HERE / "overlays" / self.overlay, folder)],
            "components": [os.path.relpath(HERE / "components" / part, folder) for part in self._parts()],
            "images": [{"name": each, **name[each], **tag} for each in IMAGES if name[each] or tag],
            "configMapGenerator": ([merged] if literals else []),
            "patches": [*self._patches(), *([] if with_namespace else [_WITHOUT_NAMESPACE])],
            "replicas": self.lake.scaled(),
            # After registry and tag are known, unlike in the component.
            "replacements": [_AGENT_IMAGE] if self.launch else [],
        }

    def _parts(self) -> list[str]:
        """Return the components, each after those that it changes."""
        chosen = {
            "lake": self.has_several_collectors and self.overlay != SCALE,
            "cert-manager": self.cert_manager,
            "mutual-tls": self.mutual_tls,
            "mutual-tls-cert-manager": self.mutual_tls and self.cert_manager,
            "launch": self.launch,
            "pods": self.pods,
            "external-collector": self.collector,
        }
        return [part for part, is_chosen in chosen.items() if is_chosen]

    def _patches(self) -> Iterator[dict[str, Any]]:
        """Yield the changes of single objects. Retention belongs to the compaction of a lake, or to the collector."""
        keeping = self.retention.arguments()
        if self.has_several_collectors:
            yield from _patch("ConfigMap", "gpuagent-lake", self.lake.changes())
            yield from _patch("CronJob", "gpuagent-compact", _add_arguments("/spec/jobTemplate/spec/template", keeping))
        else:
            yield from _patch("StatefulSet", COLLECTOR, _add_arguments("/spec/template", keeping))


@contextmanager
def compose(deployment: Deployment, *, with_namespace: bool = True) -> Iterator[Path]:
    """Yield a folder with the deployment's kustomization."""
    with TemporaryDirectory(prefix="gpuagent-deploy-") as name:
        folder = Path(name).resolve()
        kustomization = deployment.kustomization(folder, with_namespace=with_namespace)
        # JSON is YAML, too.
        (folder / "kustomization.yaml").write_text(json.dumps(kustomization, indent=2))
        yield folder


# Of rendered manifests.
_SEPARATOR = "\n---\n"


def only(manifests: str, kind: str) -> str:
    """Return the objects of one kind among rendered manifests."""
    return _SEPARATOR.join(each for each in manifests.split(_SEPARATOR) if _is_of(each, kind))


def without(manifests: str, kind: str) -> str:
    """Return rendered manifests without the objects of one kind."""
    return _SEPARATOR.join(each for each in manifests.split(_SEPARATOR) if not _is_of(each, kind))


def _is_of(manifest: str, kind: str) -> bool:
    return f"kind: {kind}" in manifest.splitlines()


def _patch(kind: str, name: str, changes: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    if changes:
        yield {"target": {"kind": kind, "name": name}, "patch": json.dumps(changes)}


def _add_arguments(template: str, arguments: Sequence[str]) -> Sequence[dict[str, Any]]:
    return [{"op": "add", "path": f"{template}/spec/containers/0/args/-", "value": each} for each in arguments]
