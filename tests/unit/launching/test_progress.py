from contextlib import closing
from pathlib import Path

from gpuagent_collector.cli.asking import asking
from gpuagent_collector.launching.progress import LaunchedRun, read_progress
from gpuagent_collector.query.local import FileReader
from gpuagent_collector.store import Store

_ROWS = """
INSERT INTO run_requests (run_id, repeat, time) VALUES ('runs', 1, now()), ('waits', 2, now());
INSERT INTO run_states (run_id, status, time, session_id) VALUES
    ('runs', 'queued', now(), 1), ('waits', 'queued', now(), 1), ('runs', 'running', now() + INTERVAL 1 SECOND, 1);
INSERT INTO run_events (run_id, event, name, time) VALUES
    ('runs', 'phase', 'setup', now()), ('runs', 'phase', 'measure', now() + INTERVAL 1 SECOND);
INSERT INTO steps (run_id, phase, step, time) VALUES
    ('runs', 'warmup', 9, now() + INTERVAL 1 SECOND), ('runs', 'measure', 4, now() + INTERVAL 2 SECOND);
"""


def launched(run_id: str) -> LaunchedRun:
    return LaunchedRun(run_id=run_id, session_uuid="s", node="gpu-7", platform=None)


def test_progress_is_what_the_store_knows_and_no_more(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "runs.duckdb")) as store:
        spec = store.spec
        with closing(store.connect()) as connection:
            connection.execute(_ROWS)
    with closing(FileReader(spec)) as reader:
        ask = asking(reader, show_sql=False)
        runs, waits, unheard = read_progress(ask, [launched("runs"), launched("waits"), launched("unheard")])
    assert (runs.status, runs.phase, runs.steps, runs.repeat) == ("running", "measure", 5, 1)
    assert runs.elapsed_seconds == 0  # the clocks differ by a second
    assert (waits.status, waits.phase, waits.steps, waits.elapsed_seconds) == ("queued", None, None, None)
    assert (unheard.is_known, unheard.status, unheard.has_ended) == (False, "queued", False)
