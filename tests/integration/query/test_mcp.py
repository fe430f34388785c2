"""An assistant's questions, asked by the official client through a process of `collector mcp`."""

import asyncio
import csv
import io
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
from mcp import Client, StdioServerParameters

from tests.integration.compare.conftest import filled  # noqa: F401 - a fixture
from tests.integration.compare.filled import FILLS, Fill
from tests.support.goldens import GOLDENS
from tests.support.servers import BIN

# Tool and its arguments.
Question = tuple[str, dict[str, Any]]


def ask(store: Path, questions: Sequence[Question]) -> list[tuple[bool, str]]:
    """Ask all questions in one session; return whether each failed, and the text that came."""

    async def session() -> list[tuple[bool, str]]:
        command = StdioServerParameters(command=str(BIN / "collector"), args=["mcp", "--store", str(store)])
        async with Client(command) as client:
            told = []
            for tool, arguments in questions:
                result = await client.call_tool(tool, arguments)
                told.append((bool(result.is_error), "".join(getattr(part, "text", "") for part in result.content)))
            return told

    return asyncio.run(session())


def words(text: str) -> list[str]:
    """Return the words of a text; of numbers, the first six digits."""
    return re.sub(r"(\d+\.\d{1,5})\d*", r"\1", text).split()


def test_an_answer_is_the_one_of_the_command_whose_options_are_found(
    filled: Callable[[Fill], Path],  # noqa: F811
) -> None:
    questions = [
        ("answer", {"command": "compare --by interference --all --no-series"}),
        ("options", {"command": "compare"}),
    ]
    (failed, text), (has_no_options, options) = ask(filled(FILLS["compare"]), questions)
    assert not failed and not has_no_options
    assert "--by" in options
    # An assistant's tools read one store; a command is told which.
    assert words(text) == words((GOLDENS / "compare-all.md").read_text().replace(" --store runs.duckdb", ""))


def test_facts_are_those_of_the_store(filled: Callable[[Fill], Path]) -> None:  # noqa: F811
    store = filled(FILLS["compare"])
    statements = [
        "SELECT count(*) FROM runs",
        "SELECT workload, count(*) AS runs FROM runs GROUP BY ALL ORDER BY ALL",
        "SELECT interference, min(repeat), max(repeat) FROM runs GROUP BY ALL ORDER BY ALL",
        "SELECT run_id, value FROM run_metrics WHERE metric = 'throughput' ORDER BY run_id LIMIT 5",
        "SELECT hostname, cpu_threads FROM sessions ORDER BY ALL",
        "SELECT name, max(value) FROM results GROUP BY ALL ORDER BY ALL",
        "SELECT count(DISTINCT node_id) FROM sessions",
        "SELECT platform, count(*) FROM runs GROUP BY ALL ORDER BY ALL",
        "SELECT status, count(*) FROM runs GROUP BY ALL ORDER BY ALL",
        "SELECT environment, count(*) FROM runs GROUP BY ALL ORDER BY ALL",
        "SELECT min(value), max(value) FROM metrics WHERE metric = 'throughput'",
        "SELECT interference, median(value) FROM runs JOIN metrics USING (run_id) WHERE metric = 'throughput' "
        "GROUP BY ALL ORDER BY ALL",
        "SELECT run_id FROM metrics WHERE metric = 'throughput' ORDER BY value DESC, run_id LIMIT 1",
        "SELECT count(*), sum(items) FROM steps",
        "SELECT phase, count(*), max(wall_seconds) FROM steps GROUP BY ALL ORDER BY ALL",
        "SELECT max(power_watts), max(temperature_celsius) FROM gpu_samples",
        "SELECT name, memory_total_bytes FROM devices ORDER BY ALL",
        "SELECT min(cpu_percent), max(cpu_percent) FROM host_samples",
        "SELECT max(memory_used_bytes) FROM host_samples",
        "SELECT count(*) FROM metrics WHERE value IS NULL",
        "SELECT unit, count(DISTINCT metric) FROM metrics WHERE unit <> '' GROUP BY ALL ORDER BY ALL",
        "SELECT DISTINCT event FROM run_events ORDER BY ALL",
        "SELECT DISTINCT cpu_model FROM sessions ORDER BY ALL",
        "SELECT epoch(max(ended_at - started_at)) FROM runs",
        "SELECT count(*) FROM runs WHERE is_excluded",
        "SELECT count(DISTINCT device_id) FROM run_devices",
    ]
    sql = [("sql", {"statement": statement}) for statement in statements]
    asked = ask(store, [*sql, ("runs", {"limit": 3}), ("schema", {}), ("schema", {"table": "gpu_samples"})])
    assert not [text for failed, text in asked if failed]
    *figures, runs, tables, columns = (text for _, text in asked)
    with duckdb.connect(str(store), read_only=True) as connection:
        for statement, text in zip(statements, figures, strict=True):
            known = connection.execute(statement).fetchall()
            head, *lines = csv.reader(io.StringIO(text))
            assert len(head) == len(known[0])
            assert [[float(cell) if cell[:1].isdigit() else cell for cell in line] for line in lines] == [
                ["" if cell is None else cell if isinstance(cell, str) else float(cell) for cell in row]
                for row in known
            ]
    assert len(list(csv.DictReader(io.StringIO(runs)))) == 3
    assert "\ngpu_samples: " in tables
    assert "power_watts DOUBLE [W]" in columns


def test_nothing_can_be_written_or_read_elsewhere(filled: Callable[[Fill], Path], tmp_path: Path) -> None:  # noqa: F811
    store = tmp_path / "runs.duckdb"
    shutil.copy(filled(FILLS["compare"]), store)
    before = store.read_bytes()
    files = set(tmp_path.iterdir())
    secret = tmp_path.parent / "secret.csv"
    secret.write_text("a,b\n1,hidden\n")
    hostile = [
        ("sql", {"statement": f"SELECT * FROM read_csv('{secret}')"}),
        ("sql", {"statement": f"SELECT * FROM '{secret}'"}),
        ("sql", {"statement": f"COPY (SELECT 1) TO '{tmp_path}/x.csv'"}),
        ("sql", {"statement": f"ATTACH '{tmp_path}/y.duckdb'"}),
        ("sql", {"statement": "DELETE FROM runs"}),
        ("sql", {"statement": "SELECT 1; DROP TABLE steps"}),
        ("sql", {"statement": f"CREATE TABLE mine AS SELECT * FROM glob('{secret.parent}/*')"}),
        ("sql", {"statement": f"SELECT content FROM read_text('{secret}')"}),
        ("sql", {"statement": "SELECT getenv('HOME')"}),
        ("sql", {"statement": "SET memory_limit = '1TB'"}),
        ("sql", {"statement": "INSTALL httpfs"}),
        ("sql", {"statement": "PRAGMA database_list"}),
        ("sql", {"statement": f"EXPORT DATABASE '{tmp_path}/x'"}),
        ("sql", {"statement": "UPDATE run_requests SET workload = 'mine'"}),
        ("sql", {"statement": "SELECT repeat('x', 1000000000000)"}),
        ("answer", {"command": f"trace run-1 -o {tmp_path}/x.json"}),
        ("answer", {"command": f"publish run-1 --to trackio --at {tmp_path}"}),
        ("answer", {"command": f"show --token-file {secret} run-1"}),
        ("answer", {"command": f"compare --prices {secret}"}),
        ("answer", {"command": f"compare --prices={secret}"}),
        ("answer", {"command": f"plot compare -o {tmp_path}/x.png"}),
        ("answer", {"command": f"report --output {tmp_path}/x.html"}),
        ("answer", {"command": f"compare --junit {tmp_path}/x.xml"}),
        ("answer", {"command": f"compare {secret} {secret}"}),
        ("answer", {"command": f"compare --store {secret}"}),
        ("answer", {"command": f"plan --output {tmp_path}/x.yaml"}),
        ("answer", {"command": "serve"}),
        ("answer", {"command": "delete run-1"}),
        ("answer", {"command": "compare --help"}),
        ("answer", {"command": "compare 'unclosed"}),
        ("options", {"command": "serve"}),
        ("schema", {"table": "none"}),
        ("runs", {"status": "' OR 1=1 --"}),
    ]
    told = ask(store, [*hostile, ("sql", {"statement": "SELECT 42"})])
    for question, (failed, text) in zip(hostile, told[:-1], strict=True):
        # An unknown status is a text like any other, which no run has.
        assert failed or question[0] == "runs", (question, text)
        assert "hidden" not in text
        assert "Traceback" not in text
    assert told[-1] == (False, '"42"\n42\n')
    assert store.read_bytes() == before
    assert set(tmp_path.iterdir()) == files
