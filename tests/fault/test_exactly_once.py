"""Kill either side at any moment, restore a spool from a copy: every message is in the store exactly once."""

import random
import shutil
import signal
import sys

import psutil
import pytest

from gpuagent.delivery.spool import Entry, Spool
from gpuagent.sampling.rows import encode_records
from tests.fault.agent_site import STEPS, steps_written
from tests.support.servers import LIMIT_SECONDS, Node, until

pytestmark = pytest.mark.slow

MESSAGES = 4000
ROWS_A_MESSAGE = 5
KILLS = 8


def fill_spool(node: Node, first: int, messages: int = MESSAGES) -> None:
    """Write messages whose rows are numbered in load_1m, as an agent that could not reach its collector would have."""
    folder = node.folder / "spool"
    folder.mkdir(exist_ok=True, mode=0o700)
    spool = Spool(folder / "spool.sqlite", node_uuid="a node of before", limit_bytes=1 << 30)
    entries = []
    for message in range(messages):
        rows = [{"time": 1, "load_1m": float(first + message * ROWS_A_MESSAGE + row)} for row in range(ROWS_A_MESSAGE)]
        records = encode_records({"host_samples": rows})
        entries.append(Entry(records=records, droppable=True, from_unix_nano=1, to_unix_nano=2))
    spool.append(entries)
    spool.close()


def numbered(node: Node) -> tuple[int, int, int]:
    """Return how many numbered rows are stored, how many different ones, and the highest."""
    where = "session_id IN (SELECT session_id FROM marks) AND time < '1971-01-01'"
    columns = "count(*) AS rows, count(DISTINCT load_1m) AS different, coalesce(max(load_1m), -1)::BIGINT AS highest"
    (row,) = node.ask(f"SELECT {columns} FROM host_samples WHERE {where}")
    return row["rows"], row["different"], row["highest"]


def test_either_side_can_be_killed_again_and_again(node: Node) -> None:
    fill_spool(node, first=0)
    moments = random.Random(1)
    collector, agent = node.serve(), node.start_agent("--platform", "here")
    address = node.environment["GPUAGENT_COLLECTOR"]
    for _ in range(KILLS):
        goal = min(numbered(node)[0] + moments.randrange(2000), MESSAGES * ROWS_A_MESSAGE)
        until(lambda goal=goal: numbered(node)[0] >= goal, f"row {goal}")  # type: ignore[misc]
        if moments.random() < 0.5:
            node.stop(collector, signal.SIGKILL)
            collector = node.serve(address)
        else:
            node.stop(agent, signal.SIGKILL)
            agent = node.start_agent("--platform", "here")
    rows = MESSAGES * ROWS_A_MESSAGE
    until(lambda: numbered(node)[0] >= rows, "every row")
    node.stop(agent)
    assert numbered(node) == (rows, rows, rows - 1)
    live = "session_id, time, count(*) FROM host_samples WHERE time > '2000-01-01' GROUP BY ALL HAVING count(*) > 1"
    assert node.ask(f"SELECT {live}") == []


def test_a_spool_restored_from_a_copy_stores_the_old_once_and_hides_nothing_new(node: Node) -> None:
    fill_spool(node, first=0, messages=100)
    copy = node.folder / "copy"
    shutil.copytree(node.folder / "spool", copy)
    node.serve()
    agent = node.start_agent("--platform", "here")
    until(lambda: numbered(node)[0] == 100 * ROWS_A_MESSAGE, "every row")
    node.stop(agent)
    shutil.rmtree(node.folder / "spool")
    shutil.copytree(copy, node.folder / "spool")
    fill_spool(node, first=100 * ROWS_A_MESSAGE, messages=50)
    agent = node.start_agent("--platform", "here")
    rows = 150 * ROWS_A_MESSAGE
    until(lambda: numbered(node)[1] == rows, "the new rows")
    node.stop(agent)
    assert numbered(node) == (rows, rows, rows - 1)


def test_a_killed_agent_takes_its_workload_with_it_and_the_next_one_tells_how_far_it_came(node: Node) -> None:
    node.serve()
    agent = node.start("gpuagent", "run", "--", sys.executable, "-c", STEPS, log="run.log")
    until(lambda: node.ask("SELECT 1 FROM steps LIMIT 1"), "the first step")
    supervisors = psutil.Process(agent.pid).children()
    node.stop(agent, signal.SIGKILL)
    psutil.wait_procs(supervisors, timeout=LIMIT_SECONDS)
    (run_directory,) = (node.folder / "spool" / "runs").iterdir()
    written = steps_written(run_directory)
    node.run("gpuagent", "run", "--", sys.executable, "-c", "pass")
    (run,) = node.ask("SELECT status, reason FROM runs WHERE status <> 'succeeded'")
    assert run == {"status": "lost", "reason": "the agent was killed while it ran"}
    (steps,) = node.ask("SELECT count(*) AS rows, count(DISTINCT step) AS different, max(step) AS last FROM steps")
    assert steps == {"rows": written, "different": written, "last": written - 1}
    assert not [process for process in supervisors if process.is_running()]


def test_a_collector_killed_in_mid_run_misses_nothing_of_it(node: Node) -> None:
    collector = node.serve()
    address = node.environment["GPUAGENT_COLLECTOR"]
    agent = node.start_agent("--platform", "here")
    run = node.start("gpuagent", "run", "--", sys.executable, "-c", STEPS, log="run.log")
    until(lambda: node.ask("SELECT 1 FROM steps LIMIT 1"), "the first step")
    node.stop(collector, signal.SIGKILL)
    (run_directory,) = (node.folder / "spool" / "runs").iterdir()
    before = steps_written(run_directory)
    until(lambda: steps_written(run_directory) > before + 100, "steps while there is no collector")
    node.serve(address)
    node.stop(run, signal.SIGINT)
    until(lambda: node.ask("SELECT 1 FROM runs WHERE status = 'cancelled'"), "the run's end")
    node.stop(agent)
    written = steps_written(run_directory)
    (steps,) = node.ask("SELECT count(*) AS rows, count(DISTINCT step) AS different FROM steps")
    assert steps == {"rows": written, "different": written}
