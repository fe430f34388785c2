"""What can be wrong with a store, asked of it in SQL: of a running collector, or of the store itself.

Reading every row is a part of it: DuckDB compares each block that it reads with the checksum beside it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gpuagent_collector.exchange.tables import KEPT_HERE, ExchangedTable, exchanged_tables, newest_version
from gpuagent_collector.output.human import counted
from gpuagent_collector.query.reader import Reader
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.keys import key

# Rows whose hashes are held at once, some 200 MB; tables with more are gone through in parts.
PART_ROWS = 5_000_000

# Tables in which a workload may say the same twice.
_WORKLOADS_OWN = frozenset({"op_times", "results", "run_devices", "run_events", "steps"})

_ROWS = 'SELECT count(*) AS rows FROM "{table}"'

_READ = """
SELECT count(*) - count(DISTINCT hash(whole)) AS repeated FROM "{table}" AS whole WHERE hash(whole) % {parts} = {part}
"""

_SESSIONS = "SELECT session_id, session_uuid, count(*) AS times FROM sessions GROUP BY session_id, session_uuid"

_BAD_MARKS = """
SELECT count(*) AS rows FROM marks WHERE session_id IS NULL OR number IS NULL OR number = 0 OR committed_at IS NULL
"""

_NAMELESS_RUNS = """
SELECT count(DISTINCT run_id) AS runs, count(*) AS rows FROM "{table}"
WHERE run_id IS NOT NULL AND run_id NOT IN (SELECT run_id FROM run_requests WHERE run_id IS NOT NULL)
"""

_NAMELESS_SESSIONS = """
SELECT count(DISTINCT session_id) AS sessions, count(*) AS rows FROM "{table}"
WHERE session_id IS NOT NULL AND session_id NOT IN (SELECT session_id FROM sessions WHERE session_id IS NOT NULL)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Something that a check found.

    Attributes:
        text: in words.
        is_damage: whether a sound store could not have it. The rest can come from `collector delete`, from messages
            that were refused, or from agents that deliver at this moment.
    """

    text: str
    is_damage: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a whole check came to."""

    version: int
    tables: int
    rows: int
    remarks: tuple[Remark, ...]

    @property
    def is_sound(self) -> bool:
        """Whether there is no damage."""
        return not any(remark.is_damage for remark in self.remarks)


def check(reader: Reader, progress: Callable[[str, int], None]) -> Verdict:
    """Read the whole store and return what is wrong with it; `progress` is told of each table and its rows.

    Raises:
        GpuAgentError: the store cannot be asked at all, or its schema is not one that this command knows.
    """
    version = _version(reader)
    tables = exchanged_tables(version)
    names = sorted({*tables, *KEPT_HERE & set(reader.sql("SHOW TABLES")["name"].to_pylist())})
    remarks: list[Remark] = []
    rows = 0
    for name in names:
        table_rows, found = _read(reader, name)
        progress(name, table_rows)
        rows += table_rows
        remarks += found
    remarks += _related(reader, tables)
    return Verdict(version=version, tables=len(names), rows=rows, remarks=tuple(remarks))


def _version(reader: Reader) -> int:
    version = _number(reader, "SELECT max(version) AS version FROM schema_migrations")
    if version > newest_version():
        raise GpuAgentError(f"{reader.source} has schema {version}, newer than this command knows; upgrade gpuagent")
    return version


def _read(reader: Reader, table: str) -> tuple[int, list[Remark]]:
    """Read every value of a table; return its rows and what is wrong with them."""
    try:
        rows = _number(reader, _ROWS.format(table=table))
        parts = 1 + rows // PART_ROWS
        statements = (_READ.format(table=table, parts=parts, part=part) for part in range(parts))
        repeated = sum(_number(reader, statement) for statement in statements)
    except MisuseError as error:
        return 0, [Remark(text=f"{table} cannot be read: {error}", is_damage=True)]
    if not repeated:
        return rows, []
    own = table in _WORKLOADS_OWN
    said = ", as workloads may report them" if own else ""
    return rows, [Remark(text=f"{counted(repeated, 'row')} of {table} there more than once{said}", is_damage=not own)]


def _related(reader: Reader, tables: dict[str, ExchangedTable]) -> Iterator[Remark]:
    """Yield what does not fit together; what cannot be read has been told before."""
    for look in (_sessions, _marks, lambda reader: _orphans(reader, tables)):
        try:
            yield from look(reader)
        except MisuseError as error:
            yield Remark(text=f"what belongs together cannot be compared: {error}", is_damage=True)


def _sessions(reader: Reader) -> Iterator[Remark]:
    rows = reader.sql(_SESSIONS).to_pylist()
    if strange := [row for row in rows if row["session_uuid"] and key(row["session_uuid"]) != row["session_id"]]:
        yield Remark(
            text=f"{counted(len(strange), 'session')} under another number than its identity's", is_damage=True
        )
    if twice := len(rows) - len({row["session_id"] for row in rows}) + sum(row["times"] > 1 for row in rows):
        yield Remark(text=f"{counted(twice, 'session')} described more than once", is_damage=True)


def _marks(reader: Reader) -> Iterator[Remark]:
    if bad := _number(reader, _BAD_MARKS):
        yield Remark(text=f"{counted(bad, 'mark')} without session, number or time", is_damage=True)


def _orphans(reader: Reader, tables: dict[str, ExchangedTable]) -> Iterator[Remark]:
    for table in tables.values():
        if table.is_of_runs and table.name != "run_requests":
            yield from _nameless(reader, _NAMELESS_RUNS, table, "run")
        if "session_id" in table.types and table.name != "sessions":
            yield from _nameless(reader, _NAMELESS_SESSIONS, table, "session")


def _nameless(reader: Reader, sql: str, table: ExchangedTable, noun: str) -> Iterator[Remark]:
    (row,) = reader.sql(sql.format(table=table.name)).to_pylist()
    if row["rows"]:
        owners = counted(row[f"{noun}s"], noun)
        text = f"{counted(row['rows'], 'row')} of {table.name} belong to {owners} that nothing describes"
        yield Remark(text=text, is_damage=False)


def _number(reader: Reader, sql: str) -> int:
    row: dict[str, Any]
    (row,) = reader.sql(sql).to_pylist()
    return int(next(iter(row.values())) or 0)
