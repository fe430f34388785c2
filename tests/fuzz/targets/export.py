"""Exports from elsewhere: merged, or refused in words, with the store as it was.

An input's first byte says what is changed: the manifest's text, or a table's Parquet file. Then the manifest is made to
fit that, as somebody would who means harm.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from gpuagent_collector.errors import StoreError
from gpuagent_collector.exchange.export import MANIFEST, CheckedExport, ExportError, export
from gpuagent_collector.exchange.merge import merge
from gpuagent_collector.query.reader import FileReader
from gpuagent_collector.store import Store, StoreSpec
from tests.fuzz.choices import Choices
from tests.fuzz.tally import Attempt
from tests.support.stores import make_store

TOKENS = (b'"rows":', b'"sha256":', b'"tables":', b'"schema_version":', b"../", b"1e400", b"null", b"PAR1", b"[", b"{")

_MANIFEST = ord("m")
_MOST_CHANGES = 6


@contextmanager
def opened(folder: Path) -> Iterator[Attempt]:
    """Export a small store, and import what an input makes of that into another."""
    with closing(FileReader(StoreSpec.parse(str(make_store(folder))))) as reader:
        export(reader, folder / "whole", None, lambda *_: None)
    with Store.open(str(folder / "other.duckdb"), exact=True) as store:

        def attempt(data: bytes) -> None:
            shutil.rmtree(folder / "changed", ignore_errors=True)
            shutil.copytree(folder / "whole", folder / "changed")
            _change(folder / "changed", data)
            with suppress(ExportError, StoreError):
                merge(CheckedExport.open(folder / "changed"), store)

        yield attempt


def _change(folder: Path, data: bytes) -> None:
    if data[:1] == bytes([_MANIFEST]):
        (folder / MANIFEST).write_bytes(data[1:])
        return
    choices = Choices(data)
    file = choices.one_of(sorted(folder.glob("*.parquet")))
    content = bytearray(file.read_bytes())
    choices.damage(content, changes=1 + choices.below(_MOST_CHANGES))
    file.write_bytes(content)
    manifest = json.loads((folder / MANIFEST).read_text())
    entry = manifest["tables"][file.stem]
    entry |= {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / MANIFEST).write_text(json.dumps(manifest))
