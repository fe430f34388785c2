"""A store whose samples are thinned out or sorted by a killed process is as it was, or a slice further."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.stores import open_store

pytestmark = pytest.mark.slow

HOURS, READINGS_AN_HOUR = 3, 2_000

# Does a slice, and is killed after a statement of the next.
THINNED = """
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

# Sorts a day, and is killed at a call for the next.
SORTED = """
import os, signal, sys
from datetime import datetime
from gpuagent_collector.store import Store
from gpuagent_collector.store.sorting import sort_old

class Killed:
    def __init__(self, connection):
        self.connection, self.done = connection, 0
    def __getattr__(self, name):
        return getattr(self.connection, name)
    def execute(self, sql, *parameters):
        answer = self.connection.execute(sql, *parameters)
        if self.done and sql.startswith(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return answer
    def commit(self):
        if self.done and sys.argv[2] == "COMMIT":
            self.connection.execute("COMMIT")
            os.kill(os.getpid(), signal.SIGKILL)
        self.connection.commit()
        self.done += 1

with Store.open(sys.argv[1]) as store:
    for _ in sort_old(Killed(store.connect()), datetime.fromisoformat("2026-02-01")):
        pass
"""

_ROLLED = """
SELECT (SELECT count(*) FROM core_samples), sum(cpu_percent.count), sum(cpu_percent.mean * cpu_percent.count),
       count(*) - count(DISTINCT time)
FROM core_rollups
"""


@pytest.mark.parametrize(
    ("kind", "statements"), [("", ("DELETE", "INSERT")), ("ducklake:", ("INSERT",))], ids=["file", "lake"]
)
def test_killed_thinning_out_has_done_whole_slices(kind: str, statements: tuple[str, ...], tmp_path: Path) -> None:
    name, rows = f"{kind}{tmp_path}/runs", HOURS * READINGS_AN_HOUR
    with open_store(name) as store, store.connect() as connection:
        connection.execute(
            "INSERT INTO core_samples (session_id, node_id, core, time, cpu_percent) "
            f"SELECT 5, 1, 0, TIMESTAMP '2026-01-01' + to_milliseconds(1800 * i), i % 5 FROM range({rows}) r(i)"
        )
    thinned = 0
    for statement in statements:
        command = [sys.executable, "-c", THINNED, name, statement]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        thinned += READINGS_AN_HOUR
        with open_store(name) as store, store.connect() as connection:
            expected = (rows - thinned, thinned, 2.0 * thinned, 0)
            assert connection.execute(_ROLLED).fetchone() == pytest.approx(expected)


def test_sorting_that_is_killed_has_done_whole_slices(tmp_path: Path) -> None:
    name, days = str(tmp_path / "runs"), 9
    with open_store(name) as store, store.connect() as connection:
        connection.execute(
            "INSERT INTO core_samples (session_id, node_id, core, time, cpu_percent) "
            "SELECT 5, 1, i % 4, TIMESTAMP '2026-01-01' + to_minutes(i // 4), i "
            f"FROM range({days * 24 * 60 * 4}) r(i)"
        )
        before = connection.execute("FROM core_samples ORDER BY ALL").fetchall()
    for number, statement in enumerate(('INSERT INTO "core_samples"', "DELETE", "INSERT INTO sortings", "COMMIT"), 1):
        command = [sys.executable, "-c", SORTED, name, statement]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        with open_store(name) as store, store.connect() as connection:
            assert connection.execute("FROM core_samples ORDER BY ALL").fetchall() == before
            done = number + (statement == "COMMIT")
            assert connection.execute("SELECT count(*) FROM sortings").fetchone() == (done,)
            by_core = "SELECT core FROM core_samples ORDER BY rowid DESC LIMIT 5760"
            cores = [core for (core,) in connection.execute(by_core).fetchall()]
            assert cores == sorted(cores, reverse=True)
