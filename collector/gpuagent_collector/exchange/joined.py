"""Several stores in files as one, for a command that compares them."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from gpuagent_collector.exchange.merge import OtherStore, merge
from gpuagent_collector.query.local import FileReader
from gpuagent_collector.store import Store, StoreSpec
from gpuagent_collector.times import utc_now
from gpuagent_common.errors import MisuseError
from gpuagent_common.text import counted
from gpuagent_common.waiting import waiting_for

# Of the runs of a file, where platforms do not tell the files apart.
_LABEL = "file"

_RUNS = "SELECT DISTINCT run_id, platform FROM run_requests LEFT JOIN sessions USING (session_id)"

_MARK = """
INSERT INTO run_edits BY NAME
SELECT run_id, ? AS time, json_merge_patch(coalesce(labels, '{}')::JSON, ?::JSON) AS labels
FROM runs WHERE run_id = ANY(?)"""


class JoinedReader(FileReader):
    """A reader of several stores as one: `by` is the facet by which they are sides, `sides` has its values."""

    by: str
    sides: Sequence[str]


@contextmanager
def join_stores(files: Sequence[Path]) -> Iterator[JoinedReader]:
    """Copy the stores in these files, which are only read, into one that lasts as long as the block.

    Yields:
        Its reader.

    Raises:
        MisuseError: files have runs in common, which would be on both sides.
        StoreError: a file cannot be read, or a collector has it open.
    """
    names = [file.name if Counter(each.name for each in files)[file.name] == 1 else str(file) for file in files]
    with TemporaryDirectory(prefix="gpuagent-") as folder:
        spec = StoreSpec.parse(f"{folder}/joined.duckdb")
        runs: list[set[str]] = []
        platforms: list[set[str]] = []
        with Store.open(spec, exact=True) as store, waiting_for("collector", "the rows of the stores"):
            for file in files:
                with OtherStore.open(file) as other:
                    rows = other.reader.sql(_RUNS).to_pylist()
                    merge(other, store)
                runs.append({row["run_id"] for row in rows})
                platforms.append({row["platform"] for row in rows})
            for at, (name, own) in enumerate(zip(names, runs, strict=True)):
                if not own:
                    raise MisuseError(f"{name} has no runs")
                if common := own & set().union(*runs[:at]):
                    shared = f"{name} and {', '.join(names[:at])} have {counted(len(common), 'run')} in common"
                    raise MisuseError(f"{shared}; a run has one side, so name files of different runs")
            every = [name for of_file in platforms for name in of_file]
            are_platforms = None not in every and len(every) == len(set(every)) == len(files)
            if not are_platforms:
                with store.transaction() as connection:
                    for name, of_file in zip(names, runs, strict=True):
                        connection.execute(_MARK, [utc_now(), json.dumps({_LABEL: name}), sorted(of_file)])
        reader = JoinedReader(spec)
        reader.source = f"the stores {' and '.join(names)}"
        reader.by, reader.sides = ("platform", every) if are_platforms else (f"label:{_LABEL}", names)
        try:
            yield reader
        finally:
            reader.close()
