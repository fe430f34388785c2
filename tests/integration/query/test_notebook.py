"""`connect`, as a notebook uses it."""

import subprocess
import sys
from datetime import datetime
from functools import partial
from pathlib import Path

import pandas
import pyarrow as pa
import pytest

from gpuagent_collector import connect
from gpuagent_collector.cli.options import ReaderOptions
from gpuagent_collector.query.reader import open_reader
from gpuagent_common.errors import GpuAgentError, MisuseError
from tests.support.query_servers import Serving
from tests.support.servers import LIMIT_SECONDS
from tests.support.stores import HOSTILE, make_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("any")
    file.chmod(0o600)
    return file


def test_a_collector_is_asked_by_its_address(serving: Serving, token: Path) -> None:
    with connect(serving.address, token_file=token) as store:
        rows = store.sql("SELECT run_id FROM runs WHERE status = ? AND repeat = ?", ["running", 2]).fetchall()
        assert sorted(rows) == [("mnist-02",), ("mnist-12",)]
        assert repr(store) == f"<the collector at {serving.address}>"
        with pytest.raises(GpuAgentError, match="cut at 100,000 rows"):
            store.sql("FROM range(200000)")


def test_a_store_is_read_by_its_path(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (store, str(store)):
        with connect(place) as opened:
            assert len(opened.sql("FROM runs")) == 4
    monkeypatch.chdir(store.parent)
    monkeypatch.setattr("gpuagent_collector.query.reader.DEFAULT_ADDRESS", "127.0.0.1:1")
    with connect() as opened:
        assert opened.source.endswith("runs.duckdb")


def test_the_environment_names_a_collector(serving: Serving, token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUAGENT_COLLECTOR", serving.address)
    monkeypatch.setenv("GPUAGENT_TOKEN_FILE", str(token))
    with connect() as store:
        assert store.sql("SELECT 1").fetchall() == [(1,)]


def test_a_frame_keeps_whole_numbers_whole_and_absent_ones_absent(store: Path) -> None:
    with connect(store) as opened:
        frame = opened.sql(
            "SELECT 9007199254740993 AS i, 0.5 AS d, TIMESTAMP '2026-01-01' AS t, 'x' AS s "
            "UNION ALL SELECT NULL, NULL, NULL, NULL"
        ).df()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["i"].dtype == pandas.Int64Dtype()
    assert frame["i"][0] == 9007199254740993
    assert frame["i"][1] is pandas.NA
    assert frame["t"][0] == datetime(2026, 1, 1)  # noqa: DTZ001 - as the store holds times
    assert frame.isna().iloc[1].all()


def test_names_that_are_there_twice_are_told_apart(store: Path) -> None:
    with connect(store) as opened:
        result = opened.sql("SELECT 1 AS a, 2 AS a")
    assert result.columns == ["a", "a_1"]
    assert isinstance(result.arrow(), pa.Table)
    assert result.df().to_dict("records") == [{"a": 1, "a_1": 2}]
    assert result.fetchall() == [(1, 2)]


def test_without_pandas_it_is_said_what_to_do(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with connect(store) as opened, pytest.raises(GpuAgentError, match="pip install pandas"):
        opened.sql("SELECT 1").df()


def test_a_result_shows_its_first_rows_and_nothing_in_it_does_anything(store: Path) -> None:
    with connect(store) as opened:
        hosts = opened.sql("SELECT hostname, '<script>alert(1)</script>' AS \"<b>\", NULL AS none FROM nodes")
        html, text = hosts._repr_html_(), repr(hosts)
        assert "<script>" not in html
        assert "<b>" not in html
        assert "&lt;script&gt;" in html
        for shown in (html, text):
            assert not any(character in shown for character in HOSTILE if not character.isprintable())
        assert "–" in text
        assert text.endswith("2 rows")
        many = opened.sql("FROM range(1000)")
    assert many._repr_html_().count("<tr>") == 21
    assert "the first 20 of 1,000 rows" in many._repr_html_()


@pytest.mark.parametrize(
    ("place", "error", "words"),
    [
        ("127.0.0.1:1", GpuAgentError, "no collector listens at 127.0.0.1:1"),
        ("nowhere.duckdb", GpuAgentError, "there is no store"),
        ("ducklake:", MisuseError, "the store needs a path"),
    ],
)
def test_what_cannot_be_opened_is_said(place: str, error: type[GpuAgentError], words: str) -> None:
    with pytest.raises(error, match=words):
        connect(place)


def test_mistakes_are_said_as_on_the_command_line(store: Path) -> None:
    with connect(store) as opened:
        for sql, words in (("FROM rums", "did you mean runs"), ("DELETE FROM run_states", "cannot change anything")):
            with pytest.raises(MisuseError, match=words):
                opened.sql(sql)


_STOPPED_THEN_OPENED = """
import sys
from gpuagent_collector import connect
from gpuagent_collector.query.reader import open_reader

def stopped_halfway():
    reader = open_reader(address=None, token_file=None, store=sys.argv[1])
    try:
        with reader.stream("FROM range(100000)") as answer:
            for _ in answer:
                raise KeyboardInterrupt
    finally:
        reader.close()

try:
    stopped_halfway()
except KeyboardInterrupt as error:
    kept = error  # as a notebook keeps the last error, with its traceback
with connect(sys.argv[1]) as again, connect(sys.argv[1]) as beside:
    print(len(again.sql("FROM runs")), len(beside.sql("FROM runs")))
"""


def test_a_store_can_be_opened_again_after_a_query_that_was_stopped_halfway(store: Path) -> None:
    command = [sys.executable, "-c", _STOPPED_THEN_OPENED, str(store)]
    # DuckDB would wait for the rows of the stopped query forever.
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert (done.stdout, done.stderr) == ("4 4\n", "")


def test_a_notebook_prints_an_error_as_one_line(store: Path) -> None:
    with connect(store) as opened, pytest.raises(MisuseError) as refused:
        opened.sql("SELECT nothing FROM runs")
    (line,) = refused.value._render_traceback_()
    assert line.startswith("error: ") and "nothing" in line and "\n" not in line


def test_a_reader_learns_that_nothing_can_be_stored(serving: Serving, token: Path) -> None:
    reader = open_reader(address=serving.address, token_file=token, store=None)
    for trouble in ("nothing is stored: the disk is full", ""):
        serving.service.trouble = partial(str, trouble)
        reader.sql("SELECT 1")
        assert reader.trouble == (trouble or None)
    reader.close()


def test_a_command_that_reads_says_so_too(serving: Serving, token: Path, capsys: pytest.CaptureFixture[str]) -> None:
    serving.service.trouble = lambda: "nothing is stored: the disk is full"
    with ReaderOptions(address=serving.address, token_file=token, store=None).open() as reader:
        reader.sql("SELECT 1")
    assert "disk is full" in capsys.readouterr().err


def test_importing_the_package_loads_nothing_heavy() -> None:
    script = "import sys, gpuagent_collector; assert not {'duckdb', 'pyarrow', 'grpc', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
