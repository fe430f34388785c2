"""Changes of a store by commands: removal and edits of runs, through its running collector or of the file itself."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import duckdb
import grpc

from gpuagent_collector.errors import StoreIsHeldError
from gpuagent_collector.exchange.tables import (
    Belongings,
    OfNodes,
    OfRuns,
    RunFilter,
    exchanged_tables,
    find_places,
    newest_version,
    subtract_windows,
)
from gpuagent_collector.json_cells import parse_object
from gpuagent_collector.query.ask import ask_within
from gpuagent_collector.query.named_runs import find_run_ids
from gpuagent_collector.query.reader import find_collector, find_holder, open_collector
from gpuagent_collector.query.remote import RemoteReader, to_error
from gpuagent_collector.store import Store
from gpuagent_collector.store.spec import DEFAULT_STORE
from gpuagent_collector.store.transactions import retry_conflicts, transaction
from gpuagent_collector.times import utc_now
from gpuagent_common.connection import TlsFiles
from gpuagent_common.errors import MisuseError
from gpuagent_common.naming import check_label
from gpuagent_common.program_name import check_program_name
from gpuagent_proto.v1 import store_service_pb2 as pb
from gpuagent_proto.v1.store_service_pb2_grpc import StoreServiceStub

_NODES = "SELECT DISTINCT node_id FROM sessions WHERE ? IN (hostname, node_uuid, node_id::VARCHAR)"
_RUNS_OF_NODES = "SELECT run_id FROM run_requests WHERE node_id = ANY(?)"
_HOSTS = """
SELECT coalesce(hostname, 'unknown host') AS host, count(DISTINCT run_id)
FROM sessions LEFT JOIN run_requests USING (session_id)
WHERE sessions.node_id = ANY($node_ids) OR run_id = ANY($run_ids) GROUP BY host ORDER BY host"""
_OPEN = "SELECT count(*) FROM runs WHERE run_id = ANY(?) AND ended_at IS NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A choice of what is removed: exactly one of the three is given."""

    run_ids: Sequence[str] = ()
    experiment: str | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """The rows that were removed, by table, and the number of runs, of runs that had not ended, and of runs by host."""

    tables: Mapping[str, int]
    runs: int
    open_runs: int
    hosts: Mapping[str, int]


def delete(store: Store, chosen: Deletion, *, only_count: bool) -> Deleted:
    """Remove runs or a node in one transaction, or only count their rows. Agents may deliver meanwhile.

    Raises:
        MisuseError: there is no such run or node.
        StoreError: the store failed; it is unchanged.
    """
    with store.using("change") as connection:

        def attempt() -> Deleted:
            with transaction(connection):
                if chosen.node:
                    removal = Removal.of_node(connection, chosen.node)
                else:
                    experiments = [chosen.experiment] if chosen.experiment else ()
                    runs = RunFilter(run_ids=chosen.run_ids, experiments=experiments)
                    removal = Removal.of_runs(connection, runs)
                still, hosts = removal.open_runs(), removal.hosts()
                tables = removal.count() if only_count else removal.remove()
                return Deleted(tables=tables, runs=len(removal.run_ids), open_runs=still, hosts=hosts)

        return retry_conflicts(attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Rows to be removed in an open transaction. Every method raises duckdb.Error."""

    connection: duckdb.DuckDBPyConnection
    meant: Belongings
    run_ids: Sequence[str]
    node_ids: Sequence[int] = ()

    @classmethod
    def of_runs(cls, connection: duckdb.DuckDBPyConnection, chosen: RunFilter) -> "Removal":
        """Select these runs, and samples of their nodes from times in which no other run was there.

        A run is named by its identity or the beginning of it. Raises MisuseError: there is no such run, or several
        begin like this.
        """
        ask = ask_within(connection)
        # Rows of a removed run can have been delivered since, so any row that names it counts.
        tables = [table.name for table in exchanged_tables(newest_version()).values() if table.is_of_runs]
        named = " UNION ".join(f'SELECT run_id FROM "{table}" WHERE run_id = ANY($run_ids)' for table in tables)  # noqa: S608 - names of the schema
        rows = connection.execute(named, {"run_ids": list(chosen.run_ids)}).fetchall()
        whole = {run_id for (run_id,) in rows}
        given = [*whole, *find_run_ids(ask, [name for name in chosen.run_ids if name not in whole])]
        found = find_places(ask, replace(chosen, run_ids=given))
        run_ids = {place.run_id for place in found} | whole
        if unknown := sorted(set(given) - run_ids):
            raise MisuseError(f"there is no run {unknown[0]}; `collector runs` lists them")
        if not run_ids:
            raise MisuseError("no run matches; `collector runs` lists them")
        others = (place.window for place in find_places(ask, RunFilter()) if place.run_id not in run_ids)
        windows = subtract_windows(
            (place.window for place in found if place.window), (window for window in others if window)
        )
        meant = OfRuns(run_ids=sorted(run_ids), windows=windows)
        return cls(connection=connection, meant=meant, run_ids=sorted(run_ids))

    @classmethod
    def of_node(cls, connection: duckdb.DuckDBPyConnection, name: str) -> "Removal":
        """Select all rows of the nodes with this hostname, UUID or key, and the runs that it took part in.

        Raises MisuseError: there is no such node.
        """
        node_ids = [node_id for (node_id,) in connection.execute(_NODES, [name]).fetchall()]
        if not node_ids:
            raise MisuseError(f"there is no node {name}; `collector nodes` lists them")
        run_ids = [run_id for (run_id,) in connection.execute(_RUNS_OF_NODES, [node_ids]).fetchall()]
        meant = OfNodes(node_ids=node_ids, run_ids=run_ids)
        return cls(connection=connection, meant=meant, run_ids=run_ids, node_ids=node_ids)

    def open_runs(self) -> int:
        """Return how many of the runs have not ended, as far as the store knows."""
        row = self.connection.execute(_OPEN, [list(self.run_ids)]).fetchone()
        return int(row[0]) if row else 0

    def hosts(self) -> Mapping[str, int]:
        """Return the runs of each host from which rows are selected."""
        values = {"node_ids": list(self.node_ids), "run_ids": list(self.run_ids)}
        return dict(self.connection.execute(_HOSTS, values).fetchall())

    def count(self) -> Mapping[str, int]:
        """Return the number of selected rows by table, without empty tables."""
        return self._each('SELECT count(*) FROM "{table}" WHERE {condition}')

    def remove(self) -> Mapping[str, int]:
        """Remove the rows, and return their numbers as `count` does."""
        return self._each('DELETE FROM "{table}" WHERE {condition}')

    def _each(self, sql: str) -> Mapping[str, int]:
        counts = {}
        for table in exchanged_tables(newest_version()).values():
            condition, values = self.meant.condition(table)
            row = self.connection.execute(sql.format(table=table.name, condition=condition), values).fetchone()
            if row and row[0]:
                counts[table.name] = int(row[0])
        return counts


_LABELS = "SELECT run_id, CAST(labels AS VARCHAR) FROM runs WHERE run_id = ANY(?)"

MAX_NOTE_CHARACTERS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEdit:
    """A change of runs. None: the column stays; an empty label removes it."""

    labels: Mapping[str, str]
    workload: str | None = None
    note: str | None = None
    is_excluded: bool | None = None


def edit_runs(store: Store, run_ids: Sequence[str], edit: RunEdit, now: datetime) -> None:
    """Append an edit of the runs with these identities, or beginnings of one, at `now`, in UTC.

    Raises:
        MisuseError: there is no such run, several begin like this, or a name, label or note is invalid.
        StoreError: the store failed; it is unchanged.
    """
    if edit.workload is not None:
        check_program_name(edit.workload)
    for name, value in edit.labels.items():
        # An empty value removes the label.
        check_label(name, value or "-", "--label")
    if edit.note and (len(edit.note) > MAX_NOTE_CHARACTERS or not edit.note.isprintable()):
        raise MisuseError(f"--note takes up to {MAX_NOTE_CHARACTERS} printable characters on one line")
    with store.transaction() as connection:
        found = find_run_ids(ask_within(connection), run_ids)
        rows = connection.execute(_LABELS, [list(found)]).fetchall()
        labels = {run_id: parse_object(written) or {} for run_id, written in rows}
        if unknown := sorted(set(found) - labels.keys()):
            raise MisuseError(f"there is no run {unknown[0]}; `collector runs` lists them")
        for run_id in found:
            merged = {name: value for name, value in {**labels[run_id], **edit.labels}.items() if value}
            connection.execute(
                "INSERT INTO run_edits VALUES (?, ?, ?, ?, ?, ?)",
                [run_id, now, edit.workload, json.dumps(merged) if edit.labels else None, edit.note, edit.is_excluded],
            )


Response = TypeVar("Response")

_SECONDS = 600.0


class FileChanger:
    """A store that is changed in place."""

    def __init__(self, store: Store) -> None:
        self.source = f"the store {store.spec}"
        self._store = store

    def delete(self, chosen: Deletion, *, only_count: bool) -> Deleted:
        """Remove runs or a node, or only count their rows."""
        return delete(self._store, chosen, only_count=only_count)

    def edit_runs(self, run_ids: Sequence[str], edit: RunEdit) -> None:
        """Edit runs."""
        edit_runs(self._store, run_ids, edit, utc_now())


class RemoteChanger:
    """A store that its running collector changes. Every method raises GpuAgentError where the collector fails."""

    def __init__(self, reader: RemoteReader) -> None:
        self.source = reader.source
        self._reader = reader
        self._stub = StoreServiceStub(reader.channel)

    def delete(self, chosen: Deletion, *, only_count: bool) -> Deleted:
        """Remove runs or a node, or only count their rows."""
        request = pb.DeleteRequest(
            run_ids=chosen.run_ids, experiment=chosen.experiment or "", node=chosen.node or "", only_count=only_count
        )
        answer = self._call(lambda: self._stub.Delete(request, metadata=self._reader.metadata, timeout=_SECONDS))
        tables = {each.table: each.rows for each in answer.tables}
        hosts = {each.hostname: each.runs for each in answer.hosts}
        return Deleted(tables=tables, runs=answer.runs, open_runs=answer.open_runs, hosts=hosts)

    def edit_runs(self, run_ids: Sequence[str], edit: RunEdit) -> None:
        """Edit runs."""
        request = pb.EditRunsRequest(
            run_ids=run_ids, labels=edit.labels, workload=edit.workload, note=edit.note, is_excluded=edit.is_excluded
        )
        self._call(lambda: self._stub.EditRuns(request, metadata=self._reader.metadata, timeout=_SECONDS))

    def _call(self, call: Callable[[], Response]) -> Response:
        try:
            return call()
        except grpc.RpcError as error:
            raise to_error(error, self._reader.address, self._reader.tls) from error


Changer = FileChanger | RemoteChanger


@contextmanager
def open_changer(
    *, address: str | None, token_file: Path | None, store: str | None, tls: TlsFiles | None
) -> Iterator[Changer]:
    """Open `store`, or the collector at `address`; without either, the default collector or the default store.

    Raises GpuAgentError: neither exists, or it cannot be changed.
    """
    place = None if store else find_collector(address)
    if place is None:
        try:
            opened = Store.open(store or DEFAULT_STORE, create=False)
        except StoreIsHeldError as error:
            if (place := find_holder(error)) is None:
                raise
        else:
            with opened:
                yield FileChanger(opened)
            return
    reader = open_collector(address=place, token_file=token_file, tls=tls)
    try:
        yield RemoteChanger(reader)
    finally:
        reader.close()
