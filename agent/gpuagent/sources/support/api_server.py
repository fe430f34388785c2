"""The API server of the cluster that the agent's pod is in, asked with the pod's own account: what made a pod."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from gpuagent.sources.source import Account
from gpuagent.sources.support.files import exists

_TIMEOUT_SECONDS = 5.0
# An object's metadata can have megabytes of annotations at most.
_MOST_BYTES = 2 * 1024 * 1024
# Names and owners alone, not what a pod's environment has.
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

# Whatever else makes pods has no owner of its own that says more.
_HAVE_OWNERS = frozenset({"Job", "JobSet", "RayCluster", "ReplicaSet", "StatefulSet"})
_LONGEST_CHAIN = 4
_MOST_KNOWN = 10_000

Metadata = Mapping[str, Any]


class ApiServerError(Exception):
    """The API server does not answer."""


class ApiRefusedError(ApiServerError):
    """The pod's account may not read this kind of object."""


class ApiServer:
    """The part of the API server that the agent reads: the metadata of single objects."""

    def __init__(self, account: Account) -> None:
        self._account = account
        # The kinds that the account may not read, and what made the objects of a UID.
        self.refused: set[str] = set()
        self._made_by: dict[str, str] = {}

    @property
    def has_account(self) -> bool:
        """Return whether it can be asked at all."""
        return self._account.host is not None and exists(self._account.folder / "token")

    def find_pod(self, namespace: str, name: str) -> Metadata | None:
        """Return a pod's metadata; None: there is none of this name.

        Raises:
            ApiRefusedError: the account may not read pods.
            ApiServerError: there is no answer.
        """
        return self._find("v1", "Pod", namespace, name)

    def find_maker(self, namespace: str, metadata: Metadata) -> str | None:
        """Return kind and name of what made an object, such as Deployment/web; None: nothing did.

        Where a kind on the way there may not be read, it is the last one that is known. Raises ApiServerError: there is
        no answer.
        """
        passed: list[str] = []
        made_by: str | None = None
        found: Metadata | None = metadata
        while found is not None and len(passed) < _LONGEST_CHAIN:
            owners = found.get("ownerReferences") or ()
            owner = next((each for each in owners if each.get("controller")), None)
            if owner is None:
                break
            uid, kind, name = (str(owner.get(key)) for key in ("uid", "kind", "name"))
            made_by = self._made_by.get(uid, f"{kind}/{name}")
            if uid in self._made_by:
                break
            passed.append(uid)
            if kind not in _HAVE_OWNERS or kind in self.refused:
                break
            try:
                found = self._find(str(owner.get("apiVersion")), kind, namespace, name)
            except ApiRefusedError:
                break
        if made_by is not None:
            self._made_by.update(dict.fromkeys(passed, made_by))
        while len(self._made_by) > _MOST_KNOWN:
            del self._made_by[next(iter(self._made_by))]
        return made_by

    def _find(self, version: str, kind: str, namespace: str, name: str) -> Metadata | None:
        folder = "apis" if "/" in version else "api"
        path = f"/{folder}/{version}/namespaces/{quote(namespace)}/{kind.lower()}s/{quote(name)}"
        status, content = self._get(path)
        if status == 404:
            return None
        if status in (401, 403):
            self.refused.add(kind)
            raise ApiRefusedError(f"this pod's account may not get {kind.lower()}s ({status})")
        try:
            metadata = json.loads(content)["metadata"]
        except (ValueError, KeyError, TypeError) as error:
            raise ApiServerError(f"it answers {status} without metadata") from error
        if not isinstance(metadata, dict):
            raise ApiServerError("its answer has no metadata")
        return metadata

    def _get(self, path: str) -> tuple[int, bytes]:
        """Return status and content of an answer. Raises ApiServerError: there is none."""
        # Of the agents few are in a pod with an account.
        import ssl
        from http.client import HTTPException, HTTPSConnection

        folder = self._account.folder
        try:
            # Kubernetes replaces the token every hour.
            token = (folder / "token").read_text().strip()
            context = ssl.create_default_context(cafile=folder / "ca.crt")
            connection = HTTPSConnection(
                str(self._account.host), self._account.port, timeout=_TIMEOUT_SECONDS, context=context
            )
            try:
                connection.request("GET", path, headers={"Authorization": f"Bearer {token}", "Accept": _METADATA})
                answer = connection.getresponse()
                return answer.status, answer.read(_MOST_BYTES)
            finally:
                connection.close()
        except (OSError, HTTPException) as error:
            raise ApiServerError(str(error) or type(error).__name__) from error
        except ValueError as error:
            # Its words would show the token.
            raise ApiServerError(f"{folder}/token is no token") from error
