"""The manifest of an export: what the folder holds, so that a copy which is not whole is not taken for one."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpuagent_common.errors import GpuAgentError

MANIFEST = "manifest.json"
_FORMAT = "gpuagent export"
_LARGEST_BYTES = 1_000_000
_BLOCK_BYTES = 1 << 20


class ExportError(GpuAgentError):
    """A folder is no export that this collector can take: why, and what to do. Nothing was imported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """The file of one table. It is always TABLE.parquet: a manifest can name no other place."""

    rows: int
    size_bytes: int
    sha256: str

    @classmethod
    def of(cls, file: Path, rows: int) -> "TableEntry":
        """Describe a file that holds so many rows."""
        return cls(rows=rows, size_bytes=file.stat().st_size, sha256=_sha256(file))


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What an export holds and where it is from."""

    schema_version: int
    gpuagent_version: str
    # ISO 8601, UTC.
    exported_at: str
    # The collector or store, for people.
    source: str
    # Which part of it, for people.
    chosen: str
    # The earliest time in any table; None where there are no rows.
    first_time: str | None
    last_time: str | None
    tables: Mapping[str, TableEntry]

    def write(self, folder: Path) -> None:
        """Write the manifest into the export's folder."""
        text = json.dumps({"format": _FORMAT, **asdict(self)}, indent=2, ensure_ascii=False)
        (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read the manifest of an export.

        Raises:
            ExportError: there is none, or it is none of ours.
        """
        file = folder / MANIFEST
        try:
            if file.stat().st_size > _LARGEST_BYTES:
                raise ExportError(f"{file} is too large to be the manifest of an export")
            content = json.loads(file.read_text(encoding="utf-8"))
            return _parse(content)
        except OSError as error:
            raise ExportError(f"cannot read {file}: {error.strerror}") from error
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise ExportError(
                f"{file} is damaged, or no manifest of `collector export`; copy the export again"
            ) from error


def _parse(content: Any) -> Manifest:
    """Raise AttributeError, KeyError, TypeError or ValueError where `content` is no manifest."""
    if content.pop("format") != _FORMAT:
        raise ValueError("of another program")
    tables = {str(name): _entry(**entry) for name, entry in content.pop("tables").items()}
    manifest = Manifest(tables=tables, **content)
    if type(manifest.schema_version) is not int:
        raise TypeError("a version that is no number")
    return manifest


def _entry(*, rows: int, size_bytes: int, sha256: str) -> TableEntry:
    if (type(rows), type(size_bytes), type(sha256)) != (int, int, str):
        raise TypeError("an entry of the wrong types")
    return TableEntry(rows=rows, size_bytes=size_bytes, sha256=sha256)


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while block := content.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
