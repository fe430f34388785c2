"""Several collectors on one lake: the user's settings, and their changes of components/lake."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
        """Check the settings.

        Raises:
            MisuseError: pods cannot share this store, or it has a password.
        """
        if self.store and not self.store.startswith(_STORE):
            raise MisuseError(f"STORE takes a catalog in PostgreSQL, such as '{_STORE}host=db1 dbname=lake user=lake'")
        if self.store and _PASSWORD.search(self.store):
            raise MisuseError("STORE has a password, and everybody in the namespace can read it; put it into LAKE_FILE")
        if self.data and not self.data.startswith(_DATA):
            raise MisuseError(f"DATA takes a bucket, such as {_DATA}bucket/path; a pod deletes its folders")
        if self.replicas is not None and self.replicas < 1:
            raise MisuseError(f"REPLICAS takes a whole number of at least 1; not {self.replicas}")

    def need_store(self) -> None:
        """Check that the collectors have a store.

        Raises:
            MisuseError: they have none.
        """
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
