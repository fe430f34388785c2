"""The pods of this node by their UID, which control groups have: their names, their GPUs, and what made them.

The kubelet lists the GPUs of each pod by its name. Its folder of logs has names and UIDs; so has the API server, which
alone knows what made a pod. Each may be out of the agent's reach, and then what it knows is absent.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gpuagent.sources.source import Cluster
from gpuagent.sources.support.api_server import ApiRefusedError, ApiServer, ApiServerError
from gpuagent.sources.support.files import exists
from gpuagent.sources.support.pod_resources import Kubelet, KubeletError, PodName

_LOG = logging.getLogger(__name__)

# Between two looks.
_LOOK_SECONDS = 10.0
# So long the API server is left alone that did not answer, or refused to.
_PAUSE_SECONDS = 300.0

# What may be unknown of pods.
WHAT = _GPUS, _UIDS, _OWNERS = "GPUs of pods", "UIDs of pods", "owners of pods"
_ALLOW = "let this pod's account get pods: make deploy-daemonset PODS=yes"

# The annotation by which a pod out of a file on the node is called in control groups.
_HASH = "kubernetes.io/config.hash"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod.

    Attributes:
        gpus: the UUIDs of the GPUs that are allocated to it; None: unknown.
        maker: kind and name of what made it, such as Deployment/web; None: nothing did, or unknown.
    """

    namespace: str
    name: str
    gpus: tuple[str, ...] | None = None
    maker: str | None = None


class Missing(NamedTuple):
    """Something that is unknown of pods: why, and how to change it."""

    what: str
    reason: str
    remedy: str


class Pods:
    """The pods of this node. A thread of its own asks, since answers may take seconds; it begins with the first pod."""

    def __init__(self, cluster: Cluster, find_kubelet: Callable[[Path], Kubelet]) -> None:
        self._cluster = cluster
        self._find_kubelet = find_kubelet
        self._kubelet: Kubelet | None = None
        self._api = ApiServer(cluster.account)
        # What is known, by UID. It is replaced as a whole, so that any thread may read it.
        self.known: Mapping[str, Pod] = {}
        self.missing: list[Missing] = []
        # The pods that have processes here, by UID.
        self._present: Set[str] = frozenset()
        # Of pods that the API server was asked for: UID and maker; and by name those UIDs that were unknown then.
        self._found: dict[PodName, tuple[str, str | None]] = {}
        self._unknown_then: dict[PodName, Set[str]] = {}
        # Why the API server is left alone, and until when.
        self._refusal: Missing | None = None
        self._paused_until = 0.0
        self._said: set[str] = set()
        self._looking = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def follow(self, present: Set[str]) -> Mapping[str, Pod]:
        """Return the pods that are known; `present` are the UIDs of those with processes here."""
        self.note_present(present)
        if present and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pods", daemon=True)
            self._thread.start()
        return self.known

    def note_present(self, uids: Set[str]) -> None:
        """Note the pods with processes here; the API server is asked for those alone of which it has said nothing."""
        self._present = uids

    def find_name(self, uid: str) -> PodName | None:
        """Return namespace and name of a pod at once, where the kubelet's logs have them."""
        return self._read_logs().get(uid)

    @property
    def are_expected(self) -> bool:
        """Return whether this is a node of Kubernetes, or a pod."""
        cluster = self._cluster
        return cluster.account.host is not None or exists(cluster.socket.parent) or exists(cluster.logs)

    def check(self) -> list[Missing]:
        """Return what is unknown of the pods of this node."""
        if self._api.has_account:
            # Whether there is one of this name says nothing.
            with self._looking:
                self._refuse(lambda: self._api.find_pod("default", "none"))
        self.look()
        return self.missing

    def look(self) -> None:
        """Ask all places once; `known` and `missing` are what they say."""
        with self._looking:
            self.missing = []
            listed = self._list_gpus()
            logged = self._read_logs()
            # A kubelet that restarts has the same pods afterwards.
            self._ask_api({*(self._found if listed is None else listed), *logged.values()})
            names = logged | {uid: name for name, (uid, _) in self._found.items()}
            self.known = {
                uid: Pod(
                    namespace=name[0], name=name[1], gpus=(listed or {}).get(name), maker=self._maker_of(name, uid)
                )
                for uid, name in names.items()
            }
            if not names and listed is None:
                remedy = f"mount {self._cluster.socket.parent} or {self._cluster.logs} read-only"
                self._miss(_UIDS, "the kubelet names no pods", remedy)
            elif not names and listed and (self._refusal is not None or not self._api.has_account):
                remedy = f"let this pod's account get pods (PODS=yes), or mount {self._cluster.logs} read-only"
                self._miss(_UIDS, "neither the API server nor the kubelet's logs tell them", remedy)
            for each in self.missing:
                if each.reason not in self._said:
                    self._said.add(each.reason)
                    _LOG.warning("%s: unknown here: %s; %s", each.what, each.reason, each.remedy)

    def close(self) -> None:
        """End the thread, and close the connection."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        if self._kubelet is not None:
            self._kubelet.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.look()
            self._stopped.wait(_LOOK_SECONDS)

    def _miss(self, what: str, reason: str, remedy: str) -> None:
        self.missing.append(Missing(what, reason, remedy))

    def _list_gpus(self) -> dict[PodName, tuple[str, ...] | None] | None:
        """Return the GPUs of each pod that the kubelet lists; None: there is no list."""
        socket = self._cluster.socket
        if not exists(socket):
            self._miss(_GPUS, f"{socket} is missing or not readable", f"mount {socket.parent} read-only")
            return None
        self._kubelet = self._kubelet or self._find_kubelet(socket)
        try:
            return self._kubelet.list_gpus()
        except KubeletError as error:
            self._miss(_GPUS, f"the kubelet does not answer: {error}", f"check that this user may connect to {socket}")
            return None

    def _read_logs(self) -> dict[str, PodName]:
        """Return the names of pods by their UID; the kubelet's folder of logs has one for each pod."""
        try:
            folders = os.listdir(self._cluster.logs)  # noqa: PTH208 - of names alone
        except OSError:
            return {}
        parts = [folder.split("_") for folder in folders]
        return {uid: (namespace, name) for namespace, name, uid in (each for each in parts if len(each) == 3)}

    def _ask_api(self, names: Set[PodName]) -> None:
        """Ask for the pods of these names, where there are pods of which the API server has said nothing yet."""
        for known in (self._found, self._unknown_then):
            for gone in known.keys() - names:
                del known[gone]
        if not self._api.has_account:
            self._miss(_OWNERS, "this process has no account of Kubernetes", _ALLOW)
        elif time.monotonic() >= self._paused_until:
            self._refuse(lambda: self._find_pods(names))
        if self._refusal is not None:
            self.missing.append(self._refusal)

    def _refuse(self, ask: Callable[[], object]) -> None:
        """Ask the API server, and note why it has not answered, or not answered all."""
        self._refusal = None
        try:
            ask()
        except ApiServerError as error:
            reason, remedy = str(error), _ALLOW
            if not isinstance(error, ApiRefusedError):
                reason, remedy = f"the API server does not answer: {error}", "check that this pod can reach it"
            self._refusal = Missing(_OWNERS, reason, remedy)
            self._paused_until = time.monotonic() + _PAUSE_SECONDS
            return
        if self._api.refused:
            kinds = ", ".join(sorted(f"{kind.lower()}s" for kind in self._api.refused))
            self._refusal = Missing(_OWNERS, f"this pod's account may not get {kinds}", _ALLOW)

    def _find_pods(self, names: Set[PodName]) -> None:
        unknown = self._present - {uid for uid, _ in self._found.values()}
        for name in sorted(names):
            is_known = name in self._found and self._found[name][0] in self._present
            # A pod of a set, or out of a file, may have the name of an earlier one.
            if is_known or not unknown - self._unknown_then.get(name, frozenset()):
                continue
            metadata = self._api.find_pod(*name)
            self._unknown_then[name] = unknown
            if metadata is not None:
                uid = (metadata.get("annotations") or {}).get(_HASH) or metadata.get("uid")
                self._found[name] = str(uid), self._api.find_maker(name[0], metadata)

    def _maker_of(self, name: PodName, uid: str) -> str | None:
        found = self._found.get(name)
        return found[1] if found is not None and found[0] == uid else None
