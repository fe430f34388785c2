import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from gpuagent_collector.cli import COMMANDS, cli
from gpuagent_collector.present.statuses import STATUSES
from gpuagent_collector.schema.describe import describe_store
from gpuagent_collector.store import Store
from gpuagent_collector.store.spec import DEFAULT_STORE
from tests.support.commands import made_up
from tests.support.recent import HOSTILE, fill
from tests.unit.cli_collector.conftest import Collector

pytestmark = pytest.mark.slow

# The commands that read, and completion.
READING = [("query",), ("schema",), ("nodes",), ("runs",), ("export",), ("completion",)]


@pytest.mark.parametrize("path", READING, ids=" ".join)
def test_every_command_has_help_with_examples(collector: Collector, path: tuple[str, ...]) -> None:
    outcome = collector(*path, "--help")
    assert outcome.code == 0
    assert path != ("runs",) or DEFAULT_STORE in outcome.out
    assert outcome.out.startswith(f"Usage: collector {' '.join(path)}")
    assert f"collector {' '.join(path)}" in outcome.out.partition("Examples:")[2]
    assert collector(*path, "-h") == outcome


def test_every_command_is_listed_and_the_help_imports_nothing_heavy() -> None:
    names = ["", "query", "schema", "nodes", "runs", "keeping", "import_", "changing", "trust", "answer", "answers"]
    script = (
        "import importlib, sys; sys.argv = ['collector', '--help']\n"
        "from gpuagent_collector.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"for name in [*{names}, 'printing']:\n"
        "    name and importlib.import_module(f'gpuagent_collector.cli.{name}')\n"
        "    heavy = {'duckdb', 'pyarrow', 'rich', 'grpc', 'numpy', 'scipy', 'matplotlib'} & set(sys.modules)\n"
        "    assert not heavy, (name, heavy)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in COMMANDS)
    for name in ("query", "schema", "nodes", "runs", "export", "import", "delete", "completion"):
        assert isinstance(cli.get_command(click.Context(cli), name), click.Command), name


def test_an_answer_goes_to_stdout_and_its_source_to_stderr_once(collector: Collector, store: str) -> None:
    outcome = collector("query", "sql", "SELECT 1 AS a", "--store", store, "--json")
    assert (outcome.code, outcome.out) == (0, '[\n{"a": 1}\n]\n')
    assert outcome.err == f"reading the store {store}\n"


def test_a_terminal_without_utf_8_shows_question_marks(store: str) -> None:
    script = "from gpuagent_collector.cli import main; main()"
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1", "COLUMNS": "80"}
    command = [sys.executable, "-c", script, "runs", "--store", store]
    done = subprocess.run(command, env=latin, capture_output=True, check=True)
    assert b"mnist-12" in done.stdout
    assert b"?" in done.stdout


def test_statements_come_from_standard_input(collector: Collector, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT 1 AS a\n"))
    assert collector("query", "sql", "-", "--store", store, "--format", "csv").out == '"a"\n1\n'


def test_a_query_takes_the_word_sql_and_parameters_by_options(collector: Collector, store: str) -> None:
    assert json.loads(collector("query", "--store", store, "sql", "SELECT 1 AS a", "--json").out) == [{"a": 1}]
    for words in (("SELECT ? AS a", "-p", "1"), ("-p", "1", "SELECT ? AS a")):
        outcome = collector("query", *words, "--store", store, "--json")
        assert outcome.out == collector("query", "sql", *words, "--store", store, "--json").out == '[\n{"a": "1"}\n]\n'
    outcome = collector("query", "sql", "SELECT ? || ? AS a", "-p", "x'", "-p", "y", "--store", store, "--json")
    assert json.loads(outcome.out) == [{"a": "x'y"}]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nope",), 2, "no command 'nope'; did you mean 'nodes'?"),
        (("tokens", "create", "agnt"), 2, "scope takes agent, viewer, operator; not 'agnt'; did you mean agent?"),
        (("tokens", "lst"), 2, "no command 'lst'; did you mean 'list'?"),
        (("runs", "--failed"), 2, "no option --failed; did you mean --status failed?"),
        (("runs", "--platfrom", "x"), 2, "no option --platfrom; did you mean --platform?"),
        (("query", "sql"), 2, "the statement is empty; give one"),
        (("query", "sql", " "), 2, "the statement is empty"),
        (("query", "sql", "DELETE FROM steps", "--store", "STORE"), 2, "a query cannot change anything"),
        (("query", "sql", "FROM run", "--store", "STORE"), 2, "did you mean runs?"),
        (("query", "sql", "SELECT stat FROM runs", "--store", "STORE"), 2, "there is no column stat; similar: status"),
        (("runs", "--platform", "nope", "--store", "STORE"), 2, "no run has the platform nope; there are: openshift,"),
        (("runs", "--workload", "nope", "--store", "STORE"), 2, "there are: mnist"),
        (("runs", "--experiment", "nope", "--store", "STORE"), 2, "no run has the experiment nope"),
        (("runs", "--status", "nope"), 2, "--status takes queued, running, "),
        (("runs", "--limit", "0"), 2, "--limit must be at least 1 and at most 1,000,000, not 0"),
        (("runs", "--limit", "x"), 2, "--limit takes a whole number, not 'x'"),
        (("check", "FILE"), 2, "unexpected argument: FILE; see: collector check --help"),
        (("completion", "tcsh"), 2, "shell takes bash, zsh, fish; not 'tcsh'"),
        (("completion",), 2, "is missing"),
        (("plot", "f.png", "frontier"), 2, "collector plot frontier -o f.png"),
        (("plot", "frontier", "f.png"), 2, "collector plot frontier -o f.png"),
        (("plot", "a", "b", "because"), 2, "`collector plot because -o because.png a b`"),
        (("plot", "frontier", "f.svg", "--by", "device"), 2, "`collector plot frontier --by device -o f.svg`"),
        (("plot", "mnist", "cost_per_run_usd", "--store", "STORE"), 2, "--workload mnist -o cost_per_run_usd.png`"),
        (("plot", "because", "--metric", "cost_per_run_usd"), 2, "`collector plot because -o because.png`"),
        (("plot", "because", "--metric=nope", "a"), 2, "`collector plot because -o because.png a`"),
        (("plot", "because,throughput"), 2, "`collector plot because -o because.png`"),
        (("plot", "because", "f.pdf", "--", "-1", "-2"), 2, "`collector plot because -o f.pdf -- -1 -2`"),
        (("compare", "--delta", "101"), 2, "--delta must be above 0 and at most 100, not 101"),
        (("compare", "--metric", "thrughput"), 2, "--metric thrughput is unknown; did you mean throughput?"),
        (("plan", "--metric", "cost_per_run_usd", "--store", "STORE"), 2, ": --metric run_seconds"),
        (("compare", "--metric", "colour"), 2, "--metric colour is unknown; `collector schema --metrics` lists all"),
        (("compare", "--metric", "cost_per_run"), 2, "did you mean cost_per_run_usd?"),
        (("compare", "--metric", "cost"), 2, "cost_per_million_items_usd"),
        (("compare", "--metric"), 2, "--metric needs a value"),
        (("plan", "--why", "a"), 2, "--why needs 2 values"),
        (("compare", "--by", "platfrom"), 2, "--by platfrom is unknown; did you mean platform?"),
        (("compare", "--by", "lr"), 2, "it is parameter:lr, argument:lr or label:lr; else there are platform,"),
        (("compare", "--by", "argument:"), 2, "needs the name of the argument; `collector query"),
        (("compare", "--by", "label:"), 2, "needs the name of the label; `collector query"),
        (("compare", "--by", "parameter:a b"), 2, "the name of the parameter; it cannot be 'a b'"),
        (("runs", "--collector", ""), 2, "HOST:PORT"),
        (("cancel", "r", "--collector", ""), 2, "HOST:PORT"),
        (("delete", "--node", "a", "--node", "b"), 2, "--node: give it once"),
        (("compare", "--workload", "a", "--workload", "b"), 2, "--workload is given 2 times; it takes one value"),
        (("tokens", "create", "agent", "--node", "a", "--node", "b"), 2, "--node: give it once"),
        (("roofline", "--by", "colour"), 2, "--by colour is unknown; of a workload, a command or a label"),
        (("report", "r.txt", "satori"), 2, "a report is a page: r.txt does not end with .html or .htm"),
        (("report", "satori", "a.html", "-o", "b.html"), 2, "the page is named twice, a.html and -o b.html"),
        (("report", "--by", "label:page", "x", "a.html", "--store", "STORE"), 2, "no run has the label:page"),
        (("report", "page.png"), 2, "a report is a page: page.png does not end with .html or .htm"),
        (("schema", "run"), 2, "did you mean runs?"),
        (("schema", "--metrics", "cost_per_run_usd"), 2, "computed with --prices"),
        (("schema", "--metrics", "gpu_power_watts:max"), 2, "no metric is named"),
        (("runs", "--store", "/nowhere/x"), 1, "there is no store /nowhere/x"),
        (("runs", "--store", "/etc/passwd"), 1, "/etc/passwd is not a DuckDB file"),
        (("runs", "--collector", "127.0.0.1:1"), 1, "no collector listens at 127.0.0.1:1; start `collector serve`"),
        (("runs", "--collector", "nonsense"), 2, "must be HOST:PORT"),
        (("runs", "--collector", "x:1", "--store", "y"), 2, "give one of them"),
        (("query", "SELECT", "1"), 2, "unexpected argument: 1; quote the statement as one word"),
        (("check", "nowhere.duckdb"), 2, "there is no store nowhere.duckdb"),
        (("nodes",), 1, "there is no runs.duckdb here; start `collector serve`"),
    ],
)
def test_a_failure_is_one_line_and_the_right_exit_code(
    collector: Collector, store: str, arguments: tuple[str, ...], code: int, words: str
) -> None:
    outcome = collector(*(store if each == "STORE" else each for each in arguments))
    assert outcome.code == code
    assert words in outcome.err
    assert "Traceback" not in outcome.err
    assert "Usage:" not in outcome.err
    assert outcome.err.splitlines()[-1].startswith("collector: ")


def test_an_error_cannot_act_on_the_terminal(collector: Collector, store: str) -> None:
    outcome = collector("query", "sql", "SELECT hostname::INT FROM nodes", "--store", store)
    # In rare cases DuckDB tells no reason.
    assert any(words in outcome.err for words in ("\\x1b", "gpu-1", "TRY_CAST"))
    assert "\x1b" not in outcome.err


def test_an_interrupt_ends_with_130(collector: Collector, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gpuagent_collector.query.reader.open_reader", interrupt)
    assert collector("runs").code == 130


def test_a_closed_pipe_is_no_error(store: str) -> None:
    command = [sys.executable, "-c", "from gpuagent_collector.cli import main; main()"]
    query = ["query", "sql", "FROM range(10000000)", "--format", "csv", "--store", store]
    with subprocess.Popen([*command, *query], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == f"reading the store {store}\n"


def test_a_store_in_use_is_reported_with_the_process(collector: Collector, store: str) -> None:
    holder = f"import duckdb, sys; c = duckdb.connect({store!r}); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        process.stdout.readline()
        outcome = collector("runs", "--store", store)
        process.communicate()
    assert outcome.code == 1
    assert f"use by process {process.pid}" in outcome.err


def test_nodes_fit_80_columns_and_show_the_hardware_and_a_wider_terminal_shows_more(
    collector: Collector, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = collector("nodes", "--store", store).out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-1].split()[:4] == ["gpu-1", "satori", "64", "540"]
    assert "2 × NVIDIA H200" in lines[-1]
    assert "4 of 64" in lines[2]
    # A memory limit above the node's memory is not shown.
    assert "540 GB" in "".join(lines)
    assert "550" not in "".join(lines)
    monkeypatch.setenv("COLUMNS", "200")
    text = collector("nodes", "--store", store).out
    assert all(word in text for word in ("kvm, podman", "580.159.04", "5.14.0", "0.1.0"))


def test_runs_fit_80_columns_newest_first(collector: Collector, store: str) -> None:
    lines = collector("runs", "--store", store).out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[2:] if line[0] != " "] == ["mnist-12", "mnist-11", "mnist-02", "mnist-01"]
    assert "1 min 24 s" in lines[-1] or "1 min 22 s" in lines[-1]
    # The reason of a failed run is shown where there is one.
    assert "ended with 1" in "".join(lines)
    assert "why" not in collector("runs", "--store", store, "--status", "running").out


def test_what_a_run_lacks_is_not_shown_as_if_it_had_it(collector: Collector, tmp_path: Path) -> None:
    path = tmp_path / "runs.duckdb"
    with made_up(path) as store:
        node = store.node("spruce", "lab")
        store.run("timed", node, start_seconds=0, parameters={"steps": None, "epochs": 2})
        store.run("counted", node, start_seconds=20, parameters={"steps": 5, "epochs": None})
        store.run("never", node, start_seconds=40, status="failed", throughput=None)
        # It failed before its program started.
        kept = [row for row in store.rows["run_states"] if (row["run_id"], row["status"]) != ("never", "running")]
        store.rows["run_states"] = kept
    out = collector("runs", "--store", str(path)).out
    assert "None" not in out
    assert "steps=5" in out
    never = json.loads(collector("runs", "--store", str(path), "--json").out)[0]
    assert (never["run_id"], never["started_at"]) == ("never", None)
    assert "ago" not in next(line for line in out.splitlines() if line.startswith("never"))
    assert "None" not in collector("peers", "counted", "--store", str(path)).out


def test_the_list_of_runs_shows_where_commands_differ_and_what_was_ended_with_a_program(
    collector: Collector, tmp_path: Path
) -> None:
    path = tmp_path / "runs.duckdb"
    batches = (32, 64, 128)
    with made_up(path) as store:
        node = store.node("spruce", "lab")
        for number, batch in enumerate(batches):
            text = json.dumps(["python", "train.py", f"--config={'long/' * 20}{batch}/{'long/' * 20}x.yaml"])
            store.run(f"r{batch}", node, start_seconds=20 * number, workload="train.py", parameters={}, command=text)
        left = {"run_id": "r64", "event": "left", "name": "processes"}
        for rank, processes in ((None, 1), (None, 2), (0, 50)):  # a program reports events of that name too
            store.rows["run_events"].append(
                {**node.at(30), **left, "rank": rank, "detail": f'{{"processes": {processes}}}'}
            )
    lines = collector("runs", "--store", str(path)).out.splitlines()
    assert max(map(len, lines)) <= 80
    listed = {batch: next(line for line in lines if line.startswith(f"r{batch} ")) for batch in batches}
    assert [f"/{batch}/" in line for batch, line in listed.items()] == [True] * 3
    assert ["3 processes" in line for line in listed.values()] == [False, True, False]
    rows = json.loads(collector("runs", "--store", str(path), "--json").out)
    assert [row["left_processes"] for row in rows] == [None, 3, None]


def test_the_list_of_runs_shows_on_80_columns_what_differs_with_its_option_and_how_fast_it_was(
    collector: Collector, tmp_path: Path
) -> None:
    path = tmp_path / "runs.duckdb"
    with made_up(path) as store:
        node = store.node("spruce", "lab")
        for number, batch in enumerate((32, 64)):
            text = json.dumps(["python", "train.py", "--epochs", "3", "--batch-size", str(batch)])
            own: dict[str, Any] = {"workload": "train.py", "parameters": {}, "command": text}
            own["throughput"] = 1234.0 + number
            store.run(f"train-{batch}", node, start_seconds=20 * number, **own)
            store.run(f"warm-{batch}", node, start_seconds=100 + 20 * number, experiment="x-warm-up", **own)
        store.run("bad", node, start_seconds=200, status="failed", **own)
        store.rows["run_states"][-1]["reason"] = "exit code 1: " + 60 * "x"
    lines = collector("runs", "--store", str(path)).out.splitlines()
    assert {"took", "started", "settings"} <= set(lines[0].split())
    shown = {line.split()[0]: line for line in lines[2:]}
    assert ["--batch-size 32" in shown["train-32"], "--batch-size 64" in shown["train-64"]] == [True, True]
    assert "1,234" in shown["train-32"]
    assert "--epochs" not in shown["train-32"]
    assert ["warm-up" in shown[name] for name in ("warm-32", "train-32")] == [True, False]
    for options in ((), ("--experiment", "x")):
        listed = collector("runs", "--status", "warm-up", *options, "--store", str(path), "--json").out
        assert [row["run_id"] for row in json.loads(listed)] == ["warm-64", "warm-32"]


def test_a_run_of_a_long_command_has_one_line_with_a_name_that_commands_know(
    collector: Collector, tmp_path: Path
) -> None:
    path = tmp_path / "runs.duckdb"
    names = [f"{'train_a_model_of_languages' * 2}.py-{number:010x}" for number in range(12)]
    with made_up(path) as store:
        node = store.node("spruce", "lab")
        for number, name in enumerate(names):
            words = ["train.py", "--learning-rate", f"0.{number + 1}", "--weight-decay-of-all-layers", "x" * number]
            own: dict[str, Any] = {"workload": "train.py", "parameters": {}, "command": json.dumps(words)}
            store.run(name, node, start_seconds=20 * number, **own)
    lines = collector("runs", "--store", str(path)).out.splitlines()
    assert len(lines) == 2 + len(names)
    short = lines[2].split()[0]
    listed = json.loads(collector("runs", short, "--store", str(path), "--json").out)
    assert [row["run_id"] for row in listed] == [names[-1]]
    assert names[-1] in collector("show", short, "--store", str(path)).out
    described = collector("runs", short, "--store", str(path)).out
    assert f"--store {path} " in described.splitlines()[-1]
    assert names[-1] in collector("runs", "--all", "--store", str(path)).out


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        (("--limit", "1"), ["mnist-12"]),
        (("--platform", "satori"), ["mnist-02", "mnist-01"]),
        (("--status", "failed"), ["mnist-11"]),
        (("--workload", "mnist", "--status", "succeeded"), ["mnist-01"]),
        (("--status", "lost"), []),
    ],
)
def test_runs_can_be_filtered(collector: Collector, store: str, options: tuple[str, ...], runs: list[str]) -> None:
    outcome = collector("runs", *options, "--store", store, "--json")
    assert [row["run_id"] for row in json.loads(outcome.out)] == runs


def test_filters_that_no_run_meets_are_named_with_a_command_that_lists_the_stored_runs(
    collector: Collector, store: str
) -> None:
    said = collector("runs", "--status", "lost", "--workload", "mnist", "--store", store).out
    assert {"mnist", "lost"} <= set(said.replace(";", "").split())
    assert f"collector runs --store {store}" in said
    assert "4 runs" in said


def test_runs_can_be_filtered_by_every_status(collector: Collector, store: str) -> None:
    for status in STATUSES:
        assert collector("runs", "--status", status, "--store", store).code == 0


@pytest.mark.parametrize("command", ["runs", "nodes"])
def test_the_printed_sql_gives_the_same_answer(collector: Collector, store: str, command: str) -> None:
    shown = collector(command, "--store", store, "--json", "--show-sql")
    sql = shown.err.split("reading the store")[0]
    assert collector("query", "sql", sql, "--store", store, "--json").out == shown.out


@pytest.mark.parametrize("command", ["runs", "nodes"])
@pytest.mark.parametrize("format_name", ["table", "json", "markdown"])
def test_hostile_names_do_nothing_to_a_terminal_in_any_format(
    collector: Collector, store: str, command: str, format_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    outcome = collector(command, "--store", store, "--format", format_name)
    assert "evil" in outcome.out
    assert not set(outcome.out) & set("\x1b\x9b\x07\u202e")


def test_schema_needs_no_store_and_describes_every_column(collector: Collector) -> None:
    outcome = collector("schema", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(outcome.out)))
    assert outcome.code == 0
    assert {"table": "gpu_samples", "column": "power_watts", "unit": "W"}.items() <= next(
        row for row in rows if row["column"] == "power_watts"
    ).items()
    assert all(row["definition"] and row["source"] and row["type"] for row in rows)


def test_schema_defines_what_measuring_workloads_report(collector: Collector) -> None:
    outcome = collector("schema", "OPERATION_N_bytes_bus_bytes_per_second", "--metrics", "--format", "csv")
    assert outcome.code == 0
    (row,) = csv.DictReader(io.StringIO(outcome.out))
    assert (row["unit"], row["better"], row["source"]) == ("bytes/s", "higher", "results of the workload collectives")
    assert "(n − 1) / n of n" in row["definition"]
    rows = list(csv.DictReader(io.StringIO(collector("schema", "--metrics", "--format", "csv").out)))
    assert {"throughput", "pairs_N_bytes_bus_bytes_per_second"} <= {row["metric"] for row in rows}
    assert all(row["definition"] and row["source"] for row in rows)


@pytest.mark.parametrize("width", [80, 160])
def test_schema_fits_the_terminal_with_column_names_unbroken(
    collector: Collector, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = collector("schema", "host_samples").out
    assert max(map(len, text.splitlines())) <= width
    assert "network_receive_bytes_per_second" in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_shells_script(collector: Collector, shell: str) -> None:
    outcome = collector("completion", shell)
    assert outcome.code == 0
    assert "_COLLECTOR_COMPLETE" in outcome.out


def test_commands_complete(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_COLLECTOR_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "collector ru")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert collector().out == "plain,runs\nplain,run\n"


@pytest.fixture
def recent(store: str) -> str:
    """The path of a store with samples of the last seconds beside old ones."""
    with Store.open(store) as opened:
        fill(opened)
    return store


def test_json_is_one_object_with_nodes_their_gpus_and_runs(collector: Collector, recent: str) -> None:
    document = json.loads(collector("watch", "--store", recent, "--json").out)
    nodes = {node["hostname"]: node for node in document["nodes"]}
    assert set(nodes) == {"alder", "birch", HOSTILE}
    assert [gpu["utilization_percent"] for gpu in nodes["alder"]["gpus"]] == [98.0, 0.0]
    assert nodes["birch"]["sample_age_seconds"] is None
    assert [run["run_id"] for run in document["runs"] if run["ended_age_seconds"] is None][:1] == ["mnist-open"]


def test_the_shown_sql_can_be_asked_by_anybody(collector: Collector, recent: str) -> None:
    shown = collector("watch", "--store", recent, "--show-sql")
    for statement in shown.err.partition("\n")[2].split(";\n\n")[:3]:
        assert collector("query", "sql", statement, "--store", recent, "--json").code == 0, statement
    assert "3 nodes" in shown.out


def test_an_empty_store_is_said_to_be_empty(collector: Collector, store: str) -> None:
    out = collector("watch", "--store", store, "--once").out
    assert "no node has" in out


@pytest.mark.parametrize("interval", ["0", "-1", "soon"])
def test_an_interval_that_makes_no_sense_is_misuse(collector: Collector, store: str, interval: str) -> None:
    assert collector("watch", "--store", store, "--interval", interval).code == 2


def test_the_schema_of_a_store_begins_with_a_line_for_each_table(collector: Collector) -> None:
    first = collector("schema").out.splitlines()
    assert len(first) <= 22
    lines = collector("schema", "--all").out.splitlines()
    assert lines[:20] == first[:20]
    listed = [line.split()[0] for line in lines[2:-2]]
    assert {"runs", "gpu_samples"} <= set(listed)
    assert max(map(len, [*first, *lines])) <= 80
    assert len(listed) == len(set(listed)) > 40
    # What has no room is seen to be cut.
    definitions = {table.name: table.definition for table in describe_store()}
    for line in lines[2:-2]:
        name, sentence = line.split(maxsplit=1)
        said = sentence.strip()
        assert said.endswith("…") or definitions[name].partition(". ")[0].removesuffix(".") == said
