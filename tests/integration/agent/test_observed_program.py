"""A program that is observed, to its steps in the store."""

import sys
from pathlib import Path

from tests.support.servers import Node, until


def test_an_observed_program_has_steps_in_the_store(sharing: Node) -> None:
    program = Path(__file__).resolve().parents[2] / "fixtures/observed/two_optimizers.py"
    done = sharing.run("gpuagent", "run", "--observe", "--", sys.executable, str(program))
    assert "15 measured steps of " in done.stderr
    sql = "SELECT phase, count(*) AS n, count(wall_seconds) AS timed FROM steps GROUP BY phase ORDER BY phase"
    assert sharing.ask(sql) == [{"phase": "measure", "n": 15, "timed": 15}, {"phase": "warmup", "n": 5, "timed": 4}]
    assert sharing.ask("SELECT unit FROM results WHERE name = 'throughput'") == [{"unit": "steps/s"}]
    until(lambda: sharing.ask("SELECT 1 FROM metrics WHERE metric = 'throughput'"), "the run's figures")
