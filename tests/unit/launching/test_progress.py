from contextlib import closing
from pathlib import Path

from gpuagent_collector.cli.asking import asking
from gpuagent_collector.launching.agents import Agent
from gpuagent_collector.launching.progress import RunProgress, read_progress
from gpuagent_collector.query.local import FileReader
from gpuagent_collector.store import Store

AGENT = Agent(session_uuid="s", node_uuid="gpu-7", version="1", allows_commands=False, labels={})

_ROWS = """
INSERT INTO run_requests (run_id, repeat, time) VALUES ('runs, too', 1, now()), ('waits', 2, now());
INSERT INTO run_states (run_id, status, time, session_id) VALUES
    ('runs, too', 'queued', now(), 1), ('waits', 'queued', now(), 1),
    ('runs, too', 'running', now() + INTERVAL 1 SECOND, 1);
INSERT INTO run_events (run_id, event, name, time) VALUES
    ('runs, too', 'phase', 'setup', now()), ('runs, too', 'phase', 'measure', now() + INTERVAL 1 SECOND);
INSERT INTO steps (run_id, phase, step, time) VALUES
    ('runs, too', 'warmup', 9, now() + INTERVAL 1 SECOND), ('runs, too', 'measure', 4, now() + INTERVAL 2 SECOND);
"""


def test_progress_comes_from_the_store_also_of_a_run_with_a_comma_in_its_id(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "runs.duckdb")) as store:
        spec = store.spec
        with closing(store.connect()) as connection:
            connection.execute(_ROWS)
    launched = [RunProgress(run_id=run_id, agent=AGENT) for run_id in ("runs, too", "waits", "unknown")]
    with closing(FileReader(spec)) as reader:
        found = read_progress(asking(reader, show_sql=False), launched)
    assert set(found) == {"runs, too", "waits"}
    runs, waits = found.values()
    assert (runs.status, runs.phase, runs.steps, runs.repeat) == ("running", "measure", 5, 1)
    assert runs.elapsed_seconds == 0  # the clocks differ by a second
    assert (waits.status, waits.phase, waits.steps, waits.elapsed_seconds) == ("queued", None, None, None)
    assert (launched[2].is_known, launched[2].status, launched[2].has_ended) == (False, "queued", False)
