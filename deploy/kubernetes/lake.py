"""Several collectors on one lake: what the user says of it, and what that changes in components/lake."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deploy.kubernetes.problems import MisuseError

# The overlay that always has several collectors; the others have them where a store is named.
SCALE = "scale"

_STORE = "ducklake:postgres:"
_DATA = "s3://"
_PASSWORD = re.compile(r"password\s*=|//[^/@]*:[^/@]*@", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """What several collectors share.

    Attributes:
        store: of `collector serve`: where the catalog is; None: not said.
        data: of `collector serve`: where the files are; None: not said.
        replicas: how many collectors; None: as many as the manifests say.
    """

    store: str | None = None
    data: str | None = None
    replicas: int | None = None

    def __post_init__(self) -> None:
        """Check what was said.

        Raises:
            MisuseError: it is for no store that pods can share, or holds a password.
        """
        if self.store and not self.store.startswith(_STORE):
            raise MisuseError(f"STORE names a catalog in PostgreSQL, as '{_STORE}host=db1 dbname=lake user=lake'")
        if self.store and _PASSWORD.search(self.store):
            raise MisuseError("no password in STORE, which everybody in the namespace may read; put it into LAKE_FILE")
        if self.data and not self.data.startswith(_DATA):
            raise MisuseError(f"DATA names a bucket, as {_DATA}bucket/path: a folder in a pod is gone with it")
        if self.replicas is not None and self.replicas < 1:
            raise MisuseError(f"REPLICAS takes a whole number from 1, not {self.replicas}")

    def need_store(self) -> None:
        """See that collectors are told where to store.

        Raises:
            MisuseError: they are not.
        """
        if not (self.store and self.data):
            raise MisuseError(
                f"several collectors need a store that all of them reach: STORE='{_STORE}host=… dbname=… user=…' and "
                f"DATA={_DATA}bucket/path, both yours; see docs/deploy/scale.md"
            )

    def changes(self) -> Sequence[dict[str, Any]]:
        """Return what changes in the ConfigMap that collectors and compaction read, as a JSON patch."""
        settings = {"/data/store": self.store, "/data/data": self.data}
        return [{"op": "replace", "path": path, "value": value} for path, value in settings.items() if value]

    def scaled(self) -> Sequence[dict[str, Any]]:
        """Return what a kustomization has as `replicas`."""
        return [{"name": "gpuagent-collector", "count": self.replicas}] if self.replicas else []
