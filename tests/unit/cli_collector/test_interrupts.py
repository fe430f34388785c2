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
