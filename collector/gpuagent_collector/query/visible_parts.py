"""The parts of the store that limited viewers see, and the whole store for everybody else.

For each reach an in-memory database is attached to the store's instance. It has a view of each of the store's tables,
limited to the rows of the sessions and runs that the reach shows, and the schema's views over those. Tables and views
of users do not exist there: a view can name the store itself, and would then show hidden rows. A limited
viewer's statement runs with that database as the default one, and the guard rejects names of any other. A table without
a view does not exist for it; so a table that a later schema adds stays hidden until a rule here covers it.

Every view ends in a LIMIT that is never reached. No optimiser may move a condition across a LIMIT, so nothing of a
statement (a cast that fails, `error(…)`) is ever evaluated on a hidden row. Each column goes through a TRY, which
changes no value but hides the table's statistics from DuckDB. Those statistics (minimum, maximum, whether any value is
NULL) cover hidden rows: DuckDB would drop conditions that cannot hold, with all that is next to them, and whether an
error comes would then reveal a hidden row.
"""

import threading
import uuid
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass

import duckdb

from gpuagent_collector.query.columns import store_columns
from gpuagent_collector.query.growth import Growth
from gpuagent_collector.query.guard import Guard, store_relations
from gpuagent_collector.schema import schema_relations
from gpuagent_collector.store import Store
from gpuagent_collector.store.columns import measure_texts, quoted, table_columns
from gpuagent_collector.store.compact import filled_tables
from gpuagent_collector.trust.tokens import Reach

# Tables about the software alone; all their rows are shown.
_PUBLIC = frozenset({"schema_migrations"})

_TABLE = """
CREATE VIEW {part}."{table}" AS
SELECT TRY(COLUMNS(*)) FROM {store}."{table}" WHERE {rule} LIMIT 9223372036854775807
"""

# Tables that describe a run's nodes, shown with the run.
_DESCRIPTIONS = frozenset({"sessions", "session_devices", "session_links", "session_paths"})

_OF_SESSION = "session_id IN (FROM {part}.shown.sessions)"
_OF_DESCRIBED = "session_id IN (FROM {part}.shown.described)"
_OF_RUN = "run_id IN (FROM {part}.shown.runs)"
_OF_EITHER = f"(run_id IS NULL AND {_OF_SESSION} OR {_OF_RUN} AND (session_id IS NULL OR {_OF_DESCRIBED}))"
_OF_OWNER = "owner_id IN (FROM {part}.shown.owners)"
_OF_NOTHING = "false"

# Of an owner these words take the place of its session's labels.
_OWNER_LABELS = {"user": "user_name", "account": "account", "namespace": "place"}

# DuckDB keeps their tables without a database, so made again elsewhere they use the tables there.
_VIEWS = """
SELECT sql FROM duckdb_views()
WHERE database_name = current_database() AND schema_name = 'main' AND list_contains(?, view_name)
"""

# The sessions shown with all their samples, the runs, and the sessions of which only the description is shown. A run
# that several sessions reported, as after a restart of its agent, is shown to viewers who see it in all of them.
_SHOWN = (
    """
    CREATE VIEW {part}.shown.sessions AS
    SELECT session_id FROM {store}.sessions AS session
    GROUP BY session_id HAVING bool_and(coalesce({of_session}, false))
    """,
    """
    CREATE VIEW {part}.shown.reported AS
    SELECT run_id, session_id FROM {store}.run_requests WHERE session_id IS NOT NULL
    UNION SELECT run_id, session_id FROM {store}.run_states WHERE session_id IS NOT NULL
    UNION SELECT run_id, session_id FROM {store}.run_devices WHERE session_id IS NOT NULL
    """,
    """
    CREATE VIEW {part}.shown.runs AS
    SELECT run_id
    FROM {part}.shown.reported
        LEFT JOIN {store}.sessions AS session USING (session_id)
        LEFT JOIN {store}.run_requests AS request USING (run_id)
    GROUP BY run_id HAVING bool_and(coalesce({of_run}, false))
    """,
    # An owner that two descriptions give to different users is shown to neither.
    """
    CREATE VIEW {part}.shown.owners AS
    SELECT owner_id FROM {store}.owners AS owner LEFT JOIN {store}.sessions AS session USING (session_id)
    GROUP BY owner_id HAVING bool_and(coalesce({of_owner}, false))
    """,
    """
    CREATE VIEW {part}.shown.described AS
    FROM {part}.shown.sessions
    UNION SELECT session_id FROM {part}.shown.reported WHERE run_id IN (FROM {part}.shown.runs)
    UNION SELECT session_id FROM {store}.owners WHERE owner_id IN (FROM {part}.shown.owners)
    """,
)

# NULL where the labels are not an object.
_LABEL = "TRY_CAST({table}.labels AS MAP(VARCHAR, VARCHAR))[{key}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The store, or a part of it.

    Attributes:
        connect: opens a new connection to it; any thread may call it.
        guard: allows the names that exist there.
        growth: bounds what statements about it make.
    """

    connect: Callable[[], duckdb.DuckDBPyConnection]
    guard: Guard
    growth: Growth


class Parts:
    """The parts of a store, each made once for its reach. Any thread may use it."""

    def __init__(self, store: Store) -> None:
        """Read the names of the store's tables; raise StoreError where that fails."""
        self._store = store
        self._name = f"part_{uuid.uuid4().hex}"
        with store.using("read") as connection:
            self._whole = Part(
                connect=store.connect,
                guard=Guard(store_relations(connection)),
                growth=Growth(store_columns(connection), store.longest_texts),
            )
            filled = filled_tables(connection) if store.spec.is_lake else None
            measure_texts(connection, store.longest_texts, filled)
        self._limited: dict[Reach, Part] = {}
        self._making = threading.Lock()

    def of(self, reach: Reach | None) -> Part:
        """Return the part for this reach; None: the whole store. Raises StoreError: the part cannot be made."""
        if reach is None:
            return self._whole
        with self._making:
            if reach not in self._limited:
                self._limited[reach] = self._make(reach, f"{self._name}_{len(self._limited)}")
            return self._limited[reach]

    def _make(self, reach: Reach, name: str) -> Part:
        with self._store.using("read") as connection:
            connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {name}")
            connection.begin()
            _fill(connection, name, reach)
            connection.commit()

        def connect() -> duckdb.DuckDBPyConnection:
            connection = self._store.connect()
            connection.execute(f"USE {name}")
            return connection

        with closing(connect()) as connection:
            guard = Guard(store_relations(connection), explain=False)
            growth = Growth(store_columns(connection), self._store.longest_texts)
            return Part(connect=connect, guard=guard, growth=growth)


def _fill(connection: duckdb.DuckDBPyConnection, part: str, reach: Reach) -> None:
    """Make the views of a part; change the connection's default database from the store to the part."""
    ((name,),) = connection.execute("SELECT current_database()").fetchall()
    store = '"' + name.replace('"', '""') + '".main'
    tables, views = table_columns(connection), connection.execute(_VIEWS, [list(schema_relations())]).fetchall()
    connection.execute(f"CREATE SCHEMA {part}.shown")
    conditions = {
        "of_session": _condition(reach, ["session"]),
        "of_run": _condition(reach, ["request", "session"]),
        "of_owner": _condition(reach, ["session"], of_owner=True),
    }
    for view in _SHOWN:
        connection.execute(view.format(part=part, store=store, **conditions))
    for table, columns in tables.items():
        rule = _rule(table, columns).format(part=part)
        connection.execute(_TABLE.format(part=part, store=store, table=table, rule=rule))
    connection.execute(f"USE {part}")
    # A lake does not keep the order of views: one made of views that do not exist yet is tried again.
    waiting = deque(sql for (sql,) in views)
    failures = 0
    while waiting:
        statement = waiting.popleft()
        try:
            connection.execute(statement)
            failures = 0
        except duckdb.CatalogException:
            waiting.append(statement)
            failures += 1
            if failures == len(waiting):
                raise


def _condition(reach: Reach, labelled: Sequence[str], *, of_owner: bool = False) -> str:
    """Return the SQL condition on a row of `session`, and on a label of the first of these tables that has it.

    Args:
        reach: what is shown.
        labelled: tables with labels.
        of_owner: whether a column of `owner` takes the place of the labels that have its meaning.
    """
    own = _OWNER_LABELS if of_owner else {}

    def values_of(label: str) -> str:
        ways = [_LABEL.format(table=table, key=quoted(label)) for table in labelled]
        return f"owner.{own[label]}" if label in own else f"coalesce({', '.join(ways)})"

    platforms = [f"session.platform IN ({_list(reach.platforms)})"] if reach.platforms else []
    labels = [f"{values_of(key)} IN ({_list(values)})" for key, values in reach.values_by_key().items()]
    return " AND ".join([*platforms, *labels])


def _rule(table: str, columns: Collection[str]) -> str:
    """Return the SQL condition on the rows of a table. Rows of no session and no run are hidden."""
    if table in _PUBLIC:
        return "true"
    if table in _DESCRIPTIONS:
        return _OF_DESCRIBED
    if "owner_id" in columns:
        return _OF_OWNER
    if {"session_id", "run_id"} <= set(columns):
        return _OF_EITHER
    if "session_id" in columns:
        return _OF_SESSION
    return _OF_RUN if "run_id" in columns else _OF_NOTHING


def _list(texts: Collection[str]) -> str:
    return ", ".join(map(quoted, texts))
