import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from gpuagent.cli import cli as gpuagent_cli
from gpuagent_collector.cli import cli, main
from gpuagent_collector.cli import cli as collector_cli
from gpuagent_collector.store import Store


def completed(cli: click.Command, *words: str) -> list[str]:
    """Return what a shell is offered for the last of the words."""
    *before, incomplete = words
    return [item.value for item in ShellComplete(cli, {}, "x", "_X").get_completions(before, incomplete)]


def test_workloads_of_this_node_are_offered() -> None:
    assert completed(gpuagent_cli, "run", "mn") == ["mnist"]
    assert completed(gpuagent_cli, "run", "resnet1") == ["resnet18"]
    assert "cpu-burn" in completed(gpuagent_cli, "run", "mnist", "--with", "")
    assert "mnist" not in completed(gpuagent_cli, "run", "--with", "")


def test_facets_are_offered_one_after_the_other() -> None:
    assert completed(collector_cli, "compare", "--by", "p") == ["platform", "parameter:"]
    assert completed(collector_cli, "compare", "--by", "platform,p") == ["platform,parameter:"]


def test_workloads_of_the_store_are_offered_where_one_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUAGENT_COLLECTOR", "127.0.0.1:1")
    file = str(tmp_path / "runs.duckdb")
    with Store.open(file) as store, store.connect() as connection:
        connection.execute("INSERT INTO run_requests (run_id, workload) VALUES ('a', 'mnist'), ('b', 'gcn')")
    assert completed(collector_cli, "compare", "--store", file, "--workload", "") == ["gcn", "mnist"]
    assert completed(collector_cli, "runs", "--store", file, "--workload", "m") == ["mnist"]
    assert completed(collector_cli, "compare", "--workload", "") == []


def test_ctrl_c_while_duckdb_executes_ends_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**_: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise RuntimeError("Query interrupted") from error

    monkeypatch.setattr(cli, "main", interrupted)
    monkeypatch.setattr(sys, "argv", ["collector", "nodes"])
    with pytest.raises(SystemExit, match="130"):
        main()


def test_another_runtime_error_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(**_: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(cli, "main", broken)
    monkeypatch.setattr("gpuagent_common.unexpected._keep", lambda *_: "a file")
    with pytest.raises(SystemExit, match="1"):
        main()
    assert "mistake of ours" in capsys.readouterr().err


_IMPORTS_IN_THE_DARK = """
import signal
from gpuagent_collector.cli.import_ import ended_by_ctrl_c
with ended_by_ctrl_c():
    try:
        signal.raise_signal(signal.SIGINT)
    except BaseException:
        pass
    print("went on")
"""


def test_ctrl_c_ends_an_import_also_where_a_library_would_swallow_it() -> None:
    done = subprocess.run([sys.executable, "-c", _IMPORTS_IN_THE_DARK], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, ""), done.stderr
    with Path("/dev/full").open("w") as full:
        deaf = subprocess.run([sys.executable, "-c", _IMPORTS_IN_THE_DARK], stdout=full, stderr=full, check=False)
    assert deaf.returncode == 130
    assert done.stderr == "\ncollector: interrupted; the same import can be repeated\n"
