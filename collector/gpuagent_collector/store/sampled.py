"""What time it is for who removes what is old: what is removed does not come back, so a clock's word is not enough."""

from datetime import datetime, timedelta

import duckdb

from gpuagent_collector.store.columns import table_columns
from gpuagent_collector.store.layout import is_large

# Of what Python can tell. No agent says so, but an imported file may; such samples are removed, not thinned out.
EARLIEST = "TIMESTAMP '0001-01-01'"

_HOUR = timedelta(hours=1)

# In which somebody may notice a clock that is wrong.
PROBATION = timedelta(days=1)


def believed(connection: duckdb.DuckDBPyConnection, now: datetime) -> datetime:
    """Return `now` if samples agree with it, else when the newest were made before the hour that should have some.

    They agree where there are some, or steps, of the last hour, and of the hour that ended a day ago, unless there are
    none as old. So what a clock that is ahead calls old stays: when the clock is the collector's alone, as long as it
    is ahead, since what it calls the last hour is empty; when it is a sampled node's too, and more than a day ahead,
    for a day, however often the collector starts anew.

    Raises:
        duckdb.Error: the store failed.
    """
    tables = filter(is_large, table_columns(connection))
    times = " UNION ALL ".join(f'SELECT time FROM "{table}"' for table in tables)  # noqa: S608 - of ours, as below
    for moment in (now, now - PROBATION):
        any_then = f"SELECT 1 FROM ({times}) WHERE time > ? AND time <= ? LIMIT 1"  # noqa: S608
        if connection.execute(any_then, [moment - _HOUR, moment]).fetchone() is None:
            newest = f"SELECT max(time) FROM ({times}) WHERE time >= {EARLIEST} AND time <= ?"  # noqa: S608
            ((time,),) = connection.execute(newest, [moment]).fetchall()
            return time or now
    return now
