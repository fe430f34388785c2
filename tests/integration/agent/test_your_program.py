"""From a program to a comparison of its throughput, and a tracker's log of a run."""

import csv
import re
import sys
from pathlib import Path

import pytest

from tests.support.servers import ForkingNode, Node, until

PROGRAM = """
import sys, time
for step in range(30):
    time.sleep(float(sys.argv[1]))
    print(f"iter {step}: loss {3 - step / 100:.4f}, time 1.00ms, mfu 5.00%")
"""


def test_what_a_program_prints_becomes_its_throughput_and_its_loss(sharing: Node, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    done = sharing.run("gpuagent", "run", "--items-per-step", "4", "--", sys.executable, str(program), "0.06")
    assert re.search(r"measured steps of \S+ ms \(pattern nanogpt\)", done.stderr)
    (throughput,) = until(
        lambda: sharing.ask("SELECT value, unit FROM metrics WHERE metric = 'throughput'"), "the run's figures"
    )
    assert 0 < throughput["value"] < 4 / 0.06
    steps = sharing.ask("SELECT phase, step, items FROM steps ORDER BY step")
    assert {step["phase"] for step in steps} == {"warmup", "measure"}
    assert {step["items"] for step in steps} == {4.0}
    assert sharing.ask("SELECT name FROM run_events WHERE event = 'found'") == [{"name": "pattern nanogpt"}]
    assert sharing.ask("SELECT value FROM metrics WHERE metric = 'loss'") == [{"value": 2.71}]
    (run,) = sharing.ask("SELECT run_id FROM runs")
    paragraph = sharing.collector("runs", run["run_id"]).stdout
    assert " (pattern nanogpt), " in " ".join(paragraph.split())
    done = sharing.run("gpuagent", "run", "--pattern", "step {step}", "--", "echo", "iteration 1")
    assert "fewer than three" in done.stderr


@pytest.mark.parametrize("is_elapsed", [False, True])
def test_the_log_of_a_run_becomes_its_steps(tmp_path: Path, is_elapsed: bool) -> None:
    with ForkingNode(tmp_path) as node:
        node.serve()
        node.run("gpuagent", "run", "--", "sleep", "1")
        (run,) = node.ask("SELECT run_id, epoch(started_at) AS started FROM runs")
        node.close()
        begin = 0.0 if is_elapsed else run["started"]
        for name, started in (("late.csv", begin + 10), ("history.csv", begin)):
            with (tmp_path / name).open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(["_step", "_timestamp", "train/loss", "note"])
                writer.writerows([step, started + step / 100, 1 / (step + 1), "a text"] for step in range(0, 100, 10))
        command = ("import", "--store", str(node.store), "--run")
        late = node.collector(*command, run["run_id"], "late.csv", code=2)
        assert "its own run" in late.stderr
        done = node.collector(*command, run["run_id"], "history.csv", "--items-per-step", "2")
        assert "10 steps and 10 values of train/loss" in done.stdout
        again = node.collector(*command, run["run_id"], "history.csv", code=2)
        assert "has 10 steps already" in again.stderr
        unknown = node.collector(*command, "no-run", "history.csv", code=2)
        assert "has no run 'no-run'" in unknown.stderr
        sql = "SELECT round(value, 3) AS value FROM metrics WHERE metric IN ('throughput', 'loss') ORDER BY metric"
        found = node.collector("query", "sql", sql, "--store", str(node.store), "--format", "csv")
        assert list(map(float, found.stdout.split()[1:])) == [0.011, 200]
        phases = node.collector(
            "query", "sql", "SELECT name FROM run_events WHERE event = 'phase'", "--store", str(node.store)
        )
        assert ("measure" in phases.stdout) is not is_elapsed
