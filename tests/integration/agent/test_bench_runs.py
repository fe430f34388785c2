"""`gpuagent bench`: interruptions, failures, standard input, terminals and collectors."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from gpuagent.agent_config import AgentConfig
from gpuagent.cli.collector_command import why_refused
from gpuagent_collector.store.spec import DEFAULT_STORE
from tests.integration.agent.test_bench import stored
from tests.integration.watch.terminals import FakeTerminal
from tests.support.servers import BIN, Node, until
from tests.support.stores import put_store

pytestmark = pytest.mark.slow

PYTHON = sys.executable

# The second cell's run waits for a file that lets it end.
WAITS = f'{PYTHON} -c \'import os, time; print("begins"); os.path.exists("go") or time.sleep(600)\''


@pytest.fixture(autouse=True)
def _alone(node: Node) -> Iterator[None]:
    node.without_collector()
    # Each bench would make its store, which takes longer than its runs.
    put_store(str(node.store))
    yield
    # Each collector ends with its command; that of a test is in a session of its own too, and has the store's path.
    assert not [
        process
        for process in psutil.process_iter(["cmdline", "cwd"])
        if "serve" in (process.info["cmdline"] or ()) and process.info["cwd"] == str(node.folder)
        if "runs.duckdb" in process.info["cmdline"]
    ]


def counts(node: Node) -> dict[str, int]:
    """Return how many runs have each status, without warm-ups."""
    sql = "SELECT status, count(*) AS n FROM runs WHERE NOT ends_with(experiment, '-warm-up') GROUP BY 1"
    return {row["status"]: row["n"] for row in stored(node.store, sql)}


def test_ctrl_c_on_a_terminal_stores_what_was_made_and_the_same_command_resumes(node: Node) -> None:
    (node.folder / "go").touch()
    terminal = FakeTerminal(columns=80)
    words = ("gpuagent", "bench", "true", WAITS, "--rounds", "2", "--prepare", "cat allowed >> count")
    # Three runs are allowed: both of the warm-up, and the first of the rounds.
    (node.folder / "allowed").write_text("x")
    process = terminal.start(*words, environment=node.environment, folder=node.folder)
    try:
        terminal.shows("[1/4]")
        (node.folder / "go").unlink()
        terminal.shows("0:0")
        terminal.press("\x03")
        assert terminal.ended(process) == 130
    finally:
        terminal.close(process)
    text = re.sub(rb"\x1b\[K|\r\n", b"", terminal.sent).decode()
    made = re.search(r"cancelled after .*; (\d) of 4 runs are stored", text)
    assert made
    assert "Traceback" not in text
    assert "interrupted" not in text
    assert counts(node) == {"succeeded": int(made[1]), "cancelled": 1}
    (node.folder / "go").touch()
    again = node.run(*words)
    assert f"resumes: {made[1]} of 4" in again.stderr
    assert counts(node)["succeeded"] == 4
    assert len({row["experiment"] for row in stored(node.store, "SELECT DISTINCT experiment FROM runs")}) == 2
    # Before each of six runs, and of the one that was cancelled.
    assert (node.folder / "count").read_text() == "x" * 7


def test_a_failed_first_round_is_not_repeated_and_shows_its_last_lines(node: Node) -> None:
    failing = f'{PYTHON} -c \'import sys; print("first line", file=sys.stderr); sys.exit("last words")\''
    done = node.run("gpuagent", "bench", "true", failing, code=1)
    assert "  first line\n" in done.stderr
    assert "exit code 1: last words" in done.stderr
    assert "  last words\n" not in done.stderr
    assert counts(node) == {}
    done = node.run("gpuagent", "bench", "true", "false", "--warm-up", "0", code=1)
    assert counts(node)["failed"] == 1
    assert not list((node.folder / "spool" / "experiments").iterdir())


def test_an_option_behind_the_program_ends_it_at_once_and_one_usage_is_printed_once(node: Node) -> None:
    (node.folder / "train.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float)\n"
        "parser.parse_args()\n"
    )
    done = node.run("gpuagent", "bench", "--", PYTHON, "train.py", "--lr", "{1,2,3}", "--rounds", "2", code=1)
    assert done.stderr.count("usage:") == 1
    assert done.stderr.endswith("so train.py got it; put it first: gpuagent bench --rounds 2 …\n")
    done = node.run("gpuagent", "bench", "--", PYTHON, "train.py", "--lr", "{a,b,c}", code=1)
    assert done.stderr.count("usage:") == 1
    assert "2 of 3 commands failed" in done.stderr


def test_a_setting_that_fails_leaves_the_others_to_compare(node: Node) -> None:
    done = node.run("gpuagent", "bench", "true", "false", "sleep 0", "--rounds", "2", "--warm-up", "0", code=1)
    assert counts(node) == {"succeeded": 4, "failed": 2}
    assert "Comparison by command" in done.stdout


def test_a_later_failure_ends_with_an_answer_and_exit_code_1(node: Node) -> None:
    # It fails from the third run on.
    failing = "echo >> times; test $(wc -l < times) -lt 3"
    done = node.run("gpuagent", "bench", "true", failing, "--rounds", "5", code=1)
    assert counts(node) == {"succeeded": 6, "failed": 3}
    assert "given up after 3 failures" in done.stderr
    assert "Comparison by command" in done.stdout


def test_without_its_store_an_interrupted_bench_begins_anew(node: Node) -> None:
    # Before the third run it ends, as if it was interrupted.
    words = ("bench", "true", "--rounds", "3", "--warm-up", "0", "--prepare", "echo >> n; test $(wc -l < n) -ne 3")
    node.run("gpuagent", *words, code=1)
    assert counts(node) == {"succeeded": 2}
    node.store.unlink()
    again = node.run("gpuagent", *words)
    assert "resumes" not in again.stderr
    assert counts(node) == {"succeeded": 3}


def test_a_bench_whose_script_has_changed_begins_anew(node: Node) -> None:
    script = node.folder / "train.py"
    script.write_text("1")
    interrupts = "echo >> n; test $(wc -l < n) -ne 3"
    words = ("bench", f"{PYTHON} train.py", "--rounds", "3", "--warm-up", "0", "--prepare", interrupts)
    node.run("gpuagent", *words, code=1)
    script.write_text("2")
    again = node.run("gpuagent", *words)
    assert "resumes" not in again.stderr
    assert "train.py changed" in again.stderr
    every = stored(node.store, "SELECT count(*) AS n FROM runs GROUP BY experiment ORDER BY min(started_at)")
    assert [row["n"] for row in every] == [2, 3]


def test_reports_that_are_refused_are_named_once(node: Node) -> None:
    reporting = 'echo "{}" > "$GPUAGENT_RUN_DIR/events.0.0.jsonl"'
    done = node.run("gpuagent", "bench", reporting, "--rounds", "2", "--warm-up", "0")
    assert done.stderr.count("1 line of events not understood") == 1
    shown = node.collector("show", "--store", str(node.store), "--json")
    assert "refused" in {caveat["code"] for caveat in json.loads(shown.stdout)["warnings"]}


def test_a_failing_preparation_ends_it(node: Node) -> None:
    done = node.run("gpuagent", "bench", "true", "--prepare", "echo no disk; exit 3", code=1)
    assert done.stderr.endswith("code 3: no disk\n")


def test_standard_input_from_a_file_is_given_to_each_run(node: Node) -> None:
    (node.folder / "data").write_text("b\na\n")
    with (node.folder / "data").open() as given:
        done = subprocess.run(
            [BIN / "gpuagent", "bench", "cat > $GPUAGENT_RUN_DIR/copy", "sort -u | tee order", "--rounds", "1"],
            stdin=given,
            env=node.environment,
            cwd=node.folder,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    copies = list((node.folder / "spool").rglob("copy"))
    assert [copy.read_text() for copy in copies] == ["b\na\n"] * 2
    assert (node.folder / "order").read_text() == "a\nb\n"
    assert " ".join(done.stdout.split()).endswith(" < data")
    query = "SELECT DISTINCT detail FROM run_events WHERE event = 'input'"
    assert [json.loads(row["detail"]) for row in stored(node.store, query)] == [{"path": "data"}]


def test_a_collector_that_listens_is_used_and_a_store_can_be_named(node: Node) -> None:
    node.serve()
    node.run("gpuagent", "bench", "true", "echo", "--rounds", "1")
    assert node.ask("SELECT count(*) AS n FROM runs WHERE NOT ends_with(experiment, '-warm-up')") == [{"n": 2}]
    done = node.run("gpuagent", "bench", "true", "echo", "--rounds", "1", "--store", "other.duckdb")
    # Also the commands that the answer names read that store, and not the collector inside the bench.
    assert "gpuagent bench --store other.duckdb " in " ".join(done.stdout.split())
    assert "--store other.duckdb --all" in done.stdout
    assert len(stored(node.folder / "other.duckdb", "SELECT * FROM runs")) == 4
    refused = node.run("gpuagent", "bench", "true", "echo", "--rounds", "1", "--store", str(node.store), code=1)
    assert refused.stderr.count("\n") == 1


REPORTS = """
import json, os, pathlib, sys, time
is_first = not pathlib.Path("made").exists()
pathlib.Path("made").touch()
if sys.argv[1] != "0" and not (is_first and "skip" in sys.argv):
    with open(os.environ["GPUAGENT_RUN_DIR"] + "/events.0.0.jsonl", "w") as file:
        result = {"event": "result", "name": "throughput", "value": float(sys.argv[1]), "unit": "images/s"}
        print(json.dumps({"t": time.time_ns(), **result}), file=file)
"""


def test_throughput_is_compared_where_all_programs_report_it_and_else_their_durations(node: Node) -> None:
    (node.folder / "reports.py").write_text(REPORTS)
    words = ("gpuagent", "bench", "--rounds", "1", "--vary", "speed=", "--", PYTHON, "reports.py", "{speed}")
    all_report = node.run(*words[:5], "speed=10,20", *words[6:])
    assert "10 images/s" in all_report.stderr
    assert "images/s" in all_report.stdout
    one_reports = node.run(*words[:5], "speed=0,20", *words[6:])
    assert "not every command" in one_reports.stderr
    assert "run duration" in one_reports.stdout
    assert "no throughput is known" not in one_reports.stdout
    # One run without it leaves the others of its side.
    (node.folder / "made").unlink()
    options = ("--rounds", "3", "--warm-up", "0", "--vary", "speed=10,20")
    most_report = node.run("gpuagent", "bench", *options, "--", PYTHON, "reports.py", "{speed}", "skip")
    assert "throughput is reported" not in most_report.stderr
    assert "images/s" in most_report.stdout


def test_a_pattern_that_fits_nothing_is_said_and_a_collector_that_refuses_is_known(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.serve()
    other = node.folder / "other"
    other.touch(mode=0o600)
    other.write_text("gpuagent-of-somebody-else\n")
    address = node.environment["GPUAGENT_COLLECTOR"]
    config = AgentConfig(collector=address, token_file=other, platform="here", python=PYTHON)
    assert "refused" in (why_refused(config) or "")
    assert why_refused(replace(config, token_file=Path(node.environment["GPUAGENT_TOKEN_FILE"]))) is None
    named = ("--collector", address, "--token-file", str(other))
    assert f"; --store {DEFAULT_STORE} reads" in node.run("collector", "runs", *named, code=1).stderr
    assert "--store" not in node.run("collector", "launch", *named, "gcn", code=1).stderr
    # One that is only slow may be this user's.
    with monkeypatch.context() as patched:
        patched.setattr("gpuagent.cli.collector_command._ANSWER_SECONDS", 0.001)
        assert why_refused(config) is None
    words = ("--rounds", "1", "--pattern", "step {step} loss {loss}", "--", "echo", "step 1/9 loss 2")
    done = node.run("gpuagent", "bench", *words)
    assert done.stderr.count("no steps: fewer than three lines") == 1
    assert "its last line is 'step 1/9 loss 2'" in done.stderr


def test_one_command_beside_unquoted_braces_is_named_and_a_time_limit_ends_it(node: Node) -> None:
    done = node.run("gpuagent", "bench", "--at-most", "0.001s", "--", "echo", "1", "2", code=1)
    assert "quote braces" in done.stderr
    assert "after 0 of 7 repeats" in done.stderr
    assert "into --at-most" in done.stderr


def test_a_killed_bench_leaves_no_collector_and_resumes(node: Node) -> None:
    process = node.start("gpuagent", "bench", WAITS, "--rounds", "1", log="bench.log")
    until(lambda: list((node.folder / "spool").rglob("runs/*/stdout")), "the first run")
    (child,) = (each for each in psutil.Process(process.pid).children() if "serve" in each.cmdline())
    node.stop(process, signal.SIGKILL)
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "the collector's end")
    (node.folder / "go").touch()
    node.run("gpuagent", "bench", WAITS, "--rounds", "1")
    assert counts(node)["succeeded"] == 1
