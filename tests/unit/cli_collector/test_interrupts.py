import subprocess
import sys

import pytest

from gpuagent_collector.cli import cli, main


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


def test_another_runtime_error_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(cli, "main", broken)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        main()


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
