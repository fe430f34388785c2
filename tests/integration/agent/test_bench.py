"""`gpuagent bench` without a collector: its main path, and the mistakes that end it at once."""

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gpuagent_collector.query.reader import open_reader
from tests.support.servers import Node


@pytest.fixture
def alone(node: Node) -> Node:
    """A node on which no collector listens."""
    node.without_collector()
    return node


def stored(store: Path, sql: str) -> list[dict[str, Any]]:
    with closing(open_reader(address=None, token_file=None, store=str(store))) as reader:
        rows: list[dict[str, Any]] = reader.sql(sql).to_pylist()
    return rows


def test_two_commands_are_answered_without_a_collector(alone: Node) -> None:
    (alone.folder / "out.html").write_text("an older one")
    done = alone.run("gpuagent", "bench", "true", "sleep 1", "--rounds", "6", "-o", "out.csv", "-o", "out.html")
    runs = stored(
        alone.store,
        "SELECT experiment, count(*) AS n, count(DISTINCT command) AS cells FROM runs GROUP BY 1 ORDER BY 1",
    )
    assert [(run["n"], run["cells"]) for run in runs] == [(12, 2), (2, 2)]
    assert runs[1]["experiment"] == f"{runs[0]['experiment']}-warm-up"
    # One line a run, and one that names what is compared.
    assert sum(line.startswith("[") for line in done.stderr.splitlines()) == 14
    assert "[12/12]" in done.stderr
    assert "durations; those below 0.1 s" in done.stderr
    assert "no throughput is known" not in done.stdout
    assert "came before all" not in done.stdout
    assert "measured phase" not in done.stdout
    assert "6 pairs" in " ".join(done.stdout.split())
    assert [line for line in done.stderr.splitlines() if line.endswith(": written")] == [
        "gpuagent: out.csv: written",
        "gpuagent: out.html: written",
    ]
    written = (alone.folder / "out.csv").read_text()
    assert {"differs", "run_seconds"} <= {cell.strip('"') for cell in written.replace("\n", ",").split(",")}
    assert "<html" in (alone.folder / "out.html").read_text()
    # Nothing is left to resume: the same command begins anew.
    assert not list((alone.folder / "spool" / "experiments").iterdir())
    printed = done.stdout.partition("charts:\n  collector ")[2].partition(" --all\n")[0]
    words = printed.replace("\\\n", "").split()
    again = alone.collector(*words, "--store", str(alone.store), "--json")
    assert json.loads(again.stdout)["tests"][0]["verdict"] == "differs"


def test_what_cannot_run_ends_before_the_first_run(alone: Node) -> None:
    (alone.folder / "train.py").write_text("")
    ended = alone.run_each(
        ["bench", "true", "/no/such/program"],
        ["bench", "true", "true"],
        ["bench", "mnist", "--precision", "fp32", "bf16"],
        ["bench", "true", "--environment", "dockr"],
        ["bench", "true", "-o", "answer.doc"],
        ["bench", "true", "-o", "no/such/folder/answer.csv"],
        ["bench", "true", "--at-most", "5"],
        ["bench", "true", "false", "--until", "2%", "--rounds", "5"],
        ["bench", "no-such-workload", "--steps", "1"],
        ["bench", "no-such-program"],
        ["bench", "mnist", "--param", "no-such=1"],
        ["bench", "mnist", "--steps", "1", "--param", "steps=2"],
        ["bench", "true", "false", "--param", "steps=2"],
        ["bench", "python3", "train.py"],
        ["bench", "train.py", "--lr", "1"],
        ["bench", "mnist", "--batch-size", "32,64"],
        ["bench", "mnist", "cifar10"],
        ["bench", "--", "trian.py"],
    )
    assert [code for code, _, _ in ended] == [2] * 18
    python = "python" if shutil.which("python") else "python3"
    assert ended[17][2].endswith(f"did you mean: {python} train.py\n")
    for _, out, err in ended:
        assert (out, err.count("\n")) == ("", 1)
        assert len(err) <= 170
    assert "'/no/such/program'" in ended[0][2]
    assert "quote braces" in ended[2][2]
    assert "no program 'no-such-program'" in ended[9][2]
    assert "mnist has no parameter 'no-such'" in ended[10][2]
    assert "steps is given twice" in ended[11][2]
    assert "--param is for a built-in workload" in ended[12][2]
    assert "gpuagent bench -- python3 train.py" in ended[13][2]
    assert f"gpuagent bench -- {python} train.py --lr 1\n" in ended[14][2]
    assert ended[15][2].endswith("several values are --vary batch-size=32,64\n")
    assert "compared alone: gpuagent bench mnist --vary NAME=A,B" in ended[16][2]
    assert not alone.store.exists()
    assert not list((alone.folder / "spool" / "experiments").glob("*"))
