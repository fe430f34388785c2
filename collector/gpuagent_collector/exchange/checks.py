"""Checks of a store's integrity in SQL, on a running collector or on the store itself.

Reading every row is part of the check: DuckDB compares each block that it reads with the checksum beside it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuagent_collector.errors import StoreError
from gpuagent_collector.exchange.tables import KEPT_HERE, ExchangedTable, exchanged_tables, newest_version
from gpuagent_collector.query.reader import Reader
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.keys import key
from gpuagent_common.text import counted

# Rows whose hashes are held at once, some 200 MB; larger tables are read in parts.
PART_ROWS = 5_000_000

# Tables in which a workload may report equal rows.
_WORKLOADS_OWN = frozenset({"op_times", "results", "run_devices", "run_events", "steps"})

_READ = """
SELECT count(*) - count(DISTINCT hash(whole)) AS repeated FROM "{table}" AS whole WHERE hash(whole) % {parts} = {part}
"""

_SESSIONS = "SELECT session_id, session_uuid, count(*) AS times FROM sessions GROUP BY session_id, session_uuid"

_BAD_MARKS = """
SELECT count(*) AS rows FROM marks WHERE session_id IS NULL OR number IS NULL OR number = 0 OR committed_at IS NULL
"""

_ORPHANS = """
SELECT count(DISTINCT {column}) AS owners, count(*) AS rows FROM "{table}"
WHERE {column} IS NOT NULL AND {column} NOT IN (SELECT {column} FROM {described_in} WHERE {column} IS NOT NULL)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """A finding of a check."""

    text: str
    # Whether no sound store has it. Other remarks can come from `collector delete`, from rejected messages, or from
    # agents that deliver at this moment.
    is_damage: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of a whole check."""

    version: int
    tables: int
    rows: int
    remarks: tuple[Remark, ...]

    @property
    def is_sound(self) -> bool:
        """Return whether there is no damage."""
        return not any(remark.is_damage for remark in self.remarks)


def check(reader: Reader, progress: Callable[[str, int], None]) -> Verdict:
    """Read the whole store and return every fault; call `progress` with each table and its number of rows.

    Raises GpuAgentError: the store cannot be queried at all, or this command does not know its schema.
    """
    version = _number(reader, "SELECT max(version) AS version FROM schema_migrations")
    if version > newest_version():
        raise GpuAgentError(f"{reader.source} has schema {version}, newer than this command knows; upgrade gpuagent")
    tables = exchanged_tables(version)
    names = sorted({*tables, *KEPT_HERE & set(reader.sql("SHOW TABLES")["name"].to_pylist())})
    remarks: list[Remark] = []
    unreadable: dict[str, object] = {}
    rows = 0
    for name in names:
        try:
            table_rows, found = _check_rows(reader, name)
        except (MisuseError, StoreError) as error:
            unreadable[name] = error.problem if isinstance(error, StoreError) else error
            continue
        progress(name, table_rows)
        rows += table_rows
        remarks += found
    if unreadable:
        text = f"{', '.join(unreadable)} cannot be read: {next(iter(unreadable.values()))}"
        remarks.append(Remark(text=text, is_damage=True))
    for look in (_check_sessions, _check_marks, lambda reader: _check_orphans(reader, tables)):
        try:
            remarks += look(reader)
        except (MisuseError, StoreError) as error:
            # A table that cannot be read has its own remark.
            if not unreadable:
                remarks.append(Remark(text=f"related rows cannot be compared: {error}", is_damage=True))
    return Verdict(version=version, tables=len(names), rows=rows, remarks=tuple(remarks))


def _check_rows(reader: Reader, table: str) -> tuple[int, list[Remark]]:
    """Read every value of a table; return its number of rows and the faults."""
    rows = _number(reader, f'SELECT count(*) AS rows FROM "{table}"')  # noqa: S608 - a name of the schema
    parts = 1 + rows // PART_ROWS
    statements = (_READ.format(table=table, parts=parts, part=part) for part in range(parts))
    repeated = sum(_number(reader, statement) for statement in statements)
    if not repeated:
        return rows, []
    own = table in _WORKLOADS_OWN
    excuse = ", which workloads may report" if own else ""
    return rows, [Remark(text=f"{counted(repeated, 'duplicate row')} in {table}{excuse}", is_damage=not own)]


def _check_sessions(reader: Reader) -> Iterator[Remark]:
    rows = reader.sql(_SESSIONS).to_pylist()
    if strange := [row for row in rows if row["session_uuid"] and key(row["session_uuid"]) != row["session_id"]]:
        yield Remark(text=f"{counted(len(strange), 'session')} with a key that does not fit the UUID", is_damage=True)
    if twice := len(rows) - len({row["session_id"] for row in rows}) + sum(row["times"] > 1 for row in rows):
        yield Remark(text=f"{counted(twice, 'session')} described more than once", is_damage=True)


def _check_marks(reader: Reader) -> Iterator[Remark]:
    if bad := _number(reader, _BAD_MARKS):
        yield Remark(text=f"{counted(bad, 'mark')} without session, number or time", is_damage=True)


def _check_orphans(reader: Reader, tables: Mapping[str, ExchangedTable]) -> Iterator[Remark]:
    for table in tables.values():
        for noun, described_in in (("run", "run_requests"), ("session", "sessions")):
            column = f"{noun}_id"
            if column not in table.types or table.name == described_in:
                continue
            sql = _ORPHANS.format(column=column, table=table.name, described_in=described_in)
            (row,) = reader.sql(sql).to_pylist()
            if row["rows"]:
                text = f"{counted(row['rows'], 'row')} of {table.name} name {counted(row['owners'], f'unknown {noun}')}"
                yield Remark(text=text, is_damage=False)


def _number(reader: Reader, sql: str) -> int:
    row: dict[str, Any]
    (row,) = reader.sql(sql).to_pylist()
    return int(next(iter(row.values())) or 0)
