"""Runs published to Trackio's databases on this machine: a file of SQLite for each project."""

import json
import os
import re
import sqlite3
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

from gpuagent_collector.exchange.logs import SYSTEM_PREFIX
from gpuagent_collector.publishing.run import Point, PublishedRun
from gpuagent_common.errors import GpuAgentError

_WAIT_SECONDS = 30.0

# As Trackio 0.43 makes them; it adds what else it needs when it opens the file.
_TABLES = """
CREATE TABLE IF NOT EXISTS metrics (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL, run_name TEXT NOT NULL,
    step INTEGER NOT NULL, metrics TEXT NOT NULL, log_id TEXT, space_id TEXT);
CREATE TABLE IF NOT EXISTS system_metrics (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL, run_name TEXT NOT NULL,
    metrics TEXT NOT NULL, log_id TEXT, space_id TEXT);
CREATE TABLE IF NOT EXISTS configs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, run_name TEXT NOT NULL, config TEXT NOT NULL,
    created_at TEXT NOT NULL, UNIQUE(run_id));
CREATE UNIQUE INDEX IF NOT EXISTS idx_metrics_log_id ON metrics(log_id) WHERE log_id IS NOT NULL;
CREATE UNIQUE INDEX IF NOT EXISTS idx_system_metrics_log_id ON system_metrics(log_id) WHERE log_id IS NOT NULL;
"""

_CURVE = "INSERT OR IGNORE INTO metrics (run_id, timestamp, run_name, step, metrics, log_id) VALUES (?, ?, ?, ?, ?, ?)"
_MEASURED = """
INSERT OR IGNORE INTO system_metrics (run_id, timestamp, run_name, metrics, log_id) VALUES (?, ?, ?, ?, ?)"""
_CONFIG = """
INSERT INTO configs (run_id, run_name, config, created_at) VALUES (?, ?, ?, ?)
ON CONFLICT (run_id) DO UPDATE SET config = excluded.config WHERE config <> excluded.config"""


class TrackioTracker:
    """Trackio's folder of databases that runs are published to."""

    def __init__(self, folder: str | None) -> None:
        """Take the folder; None: that which Trackio itself would use."""
        cache = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
        self._folder = Path(folder or Path(cache) / "trackio").expanduser()

    def publish(self, run: PublishedRun) -> tuple[int, str]:
        """Add what the project's database lacks of a run; return how many values that were, and the file.

        Raises GpuAgentError: the database cannot be written.
        """
        file = self._folder / f"{re.sub(r'[^A-Za-z0-9_-]', '', run.project) or 'default'}.db"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(file, timeout=_WAIT_SECONDS)) as database:
                database.executescript(_TABLES)
                with database:
                    return self._add(database, run), str(file)
        except (OSError, sqlite3.Error) as error:
            raise GpuAgentError(f"cannot write Trackio's {file}: {error}; name its folder with --at") from error

    def _add(self, database: sqlite3.Connection, run: PublishedRun) -> int:
        before = database.total_changes
        for point in run.points:
            time, log_id = _iso(point.time), _log_id(run.run_id, point)
            if point.name.startswith(SYSTEM_PREFIX):
                metrics = json.dumps({point.name.removeprefix(SYSTEM_PREFIX): point.value})
                database.execute(_MEASURED, [run.run_id, time, run.run_id, metrics, log_id])
            else:
                metrics = json.dumps({point.name: point.value})
                database.execute(_CURVE, [run.run_id, time, run.run_id, point.step, metrics, log_id])
        added = database.total_changes - before
        # Trackio shows when a run was created and to whom it belongs by these.
        config = {
            **run.parameters,
            **run.facts,
            "_Username": "gpuagent",
            "_Created": _iso(run.started_at),
            "_Group": None,
        }
        database.execute(_CONFIG, [run.run_id, run.run_id, json.dumps(config), _iso(run.started_at)])
        return added


def _log_id(run_id: str, point: Point) -> str:
    """Return what makes a point the same in any publication."""
    return f"gpuagent {run_id} {point.name} {point.step} {_iso(point.time)}"


def _iso(time: datetime) -> str:
    return time.replace(tzinfo=timezone.utc).isoformat()
