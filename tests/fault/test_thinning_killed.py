"""A store whose samples are thinned out by a process that is killed in mid-slice is as it was, or a slice further."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuagent_collector.store import Store

HOURS, READINGS_AN_HOUR = 3, 2_000

# Does a slice, and is killed after a statement of the next.
KILLED = """
import os, signal, sys
from datetime import datetime, timedelta
from gpuagent_collector.store import Store, retention

store_name, statement = sys.argv[1:]
done, value = [], retention._value

def value_and_die(connection, sql, *parameters):
    answer = value(connection, sql, *parameters)
    if done and sql.startswith(statement):
        os.kill(os.getpid(), signal.SIGKILL)
    return answer

retention._value = value_and_die
retention.sampled_tables = lambda tables: {"core_samples": "core_rollups"}
with Store.open(store_name) as store:
    kept, now = retention.Retention(samples=timedelta(hours=1)), datetime.fromisoformat("2026-02-01")
    for each in store.retain(kept, now):
        done.append(each)
"""

_TOLD = """
SELECT (SELECT count(*) FROM core_samples), sum(cpu_percent.count), sum(cpu_percent.mean * cpu_percent.count),
       count(*) - count(DISTINCT time)
FROM core_rollups
"""


@pytest.mark.parametrize(
    ("kind", "statements"), [("", ("DELETE", "INSERT")), ("ducklake:", ("INSERT",))], ids=["file", "lake"]
)
def test_thinning_out_that_is_killed_has_done_whole_slices(
    kind: str, statements: tuple[str, ...], tmp_path: Path
) -> None:
    name, rows = f"{kind}{tmp_path}/runs", HOURS * READINGS_AN_HOUR
    with Store.open(name) as store, store.connect() as connection:
        connection.execute(
            "INSERT INTO core_samples (session_id, node_id, core, time, cpu_percent) "
            f"SELECT 5, 1, 0, TIMESTAMP '2026-01-01' + to_milliseconds(1800 * i), i % 5 FROM range({rows}) r(i)"
        )
    thinned = 0
    for statement in statements:
        command = [sys.executable, "-c", KILLED, name, statement]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        thinned += READINGS_AN_HOUR
        with Store.open(name) as store, store.connect() as connection:
            expected = (rows - thinned, thinned, 2.0 * thinned, 0)
            assert connection.execute(_TOLD).fetchone() == pytest.approx(expected)
