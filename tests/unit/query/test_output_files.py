"""`collector query sql --output`: all rows in a file, or no file."""

import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from gpuagent_collector.present.files import appearing, write_rows
from gpuagent_collector.present.formats import ENDINGS, FileFormat
from gpuagent_common.errors import GpuAgentError
from tests.unit.cli_collector.conftest import Collector, collector, store

__all__ = ["collector", "store"]

VALUES = "SELECT 1 AS a, 'x' AS a, NULL AS n, TIMESTAMP '2026-01-01 00:00:00.5' AS t, 9007199254740993 AS big"


@pytest.mark.parametrize("ending", sorted(ENDINGS))
def test_the_name_of_a_file_says_its_format(collector: Collector, store: str, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"out{ending}"
    outcome = collector("query", "sql", VALUES, "--store", store, "-o", str(file))
    assert (outcome.code, outcome.out) == (0, "")
    assert f"wrote {file}: 1 row, {str(file.stat().st_size)[:1]}" in outcome.err
    match ENDINGS[ending]:
        case FileFormat.PARQUET:
            rows = pq.read_table(file).to_pylist()
        case FileFormat.ARROW:
            rows = pa.ipc.open_file(str(file)).read_all().to_pylist()
        case FileFormat.JSON_LINES:
            rows = [json.loads(file.read_text())]
        case FileFormat.JSON:
            rows = json.loads(file.read_text())
        case FileFormat.CSV:
            rows = pyarrow.csv.read_csv(file).to_pylist()
        case FileFormat.MARKDOWN:
            assert "| 1 | x | – |" in file.read_text()
            return
    assert [rows[0]["a"], rows[0]["a_1"], rows[0]["n"], int(rows[0]["big"])] == [1, "x", None, 9007199254740993]
    assert str(rows[0]["t"]).replace("T", " ").startswith("2026-01-01 00:00:00.5")
    assert list(tmp_path.glob(".out*")) == []


def test_format_outranks_the_name_and_rows_become_few_pieces(collector: Collector, store: str, tmp_path: Path) -> None:
    collector("query", "sql", "SELECT 1 AS a", "--store", store, "-o", str(tmp_path / "x.txt"), "--format", "jsonl")
    assert (tmp_path / "x.txt").read_text() == '{"a": 1}\n'
    file = tmp_path / "many.parquet"
    assert collector("query", "sql", "FROM range(300000)", "--store", store, "-o", str(file)).code == 0
    content = pq.ParquetFile(file)
    assert (content.metadata.num_rows, content.num_row_groups) == (300_000, 3)
    assert content.read()["range"].to_pylist() == list(range(300_000))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "there.csv"], "there.csv already exists; replace it with --force"),
        (["-o", "folder", "--format", "csv"], "folder is not a regular file"),
        (["-o", "none/x.csv"], "the directory none does not exist; run: mkdir -p none"),
        (["-o", "x.dat"], "x.dat has no known ending"),
        (["-o", "x.csv", "--format", "table"], "--format table is for the screen"),
        (["--format", "parquet"], "--format parquet needs a file: --output FILE"),
    ],
)
def test_what_cannot_be_written_is_a_misuse(collector: Collector, store: str, arguments: list[str], words: str) -> None:
    Path("there.csv").write_text("mine")
    Path("folder").mkdir()
    outcome = collector("query", "sql", "SELECT 1", "--store", store, *arguments)
    assert outcome.code == 2
    assert words in outcome.err
    assert Path("there.csv").read_text() == "mine"
    assert sorted(Path().iterdir()) == [Path("folder"), Path("there.csv")]


def test_force_replaces_and_a_failure_does_not(collector: Collector, store: str) -> None:
    file = Path("x.parquet")
    file.write_text("mine")
    assert collector("query", "sql", "SELECT INTERVAL 1 day", "--store", store, "-o", "x.parquet", "--force").code == 2
    failing = "SELECT error('late') FROM range(100000) r(i) WHERE i = 99999"
    assert collector("query", "sql", failing, "--store", store, "-o", "x.parquet", "--force").code == 2
    assert file.read_text() == "mine"
    assert collector("query", "sql", "SELECT 1", "--store", store, "-o", "x.parquet", "--force").code == 0
    assert pq.read_table(file).num_rows == 1
    assert list(Path().iterdir()) == [file]


def test_a_file_has_the_rights_that_the_user_s_mask_gives(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with appearing(tmp_path / "x") as unfinished:
            unfinished.write_text("1")
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("file_format", FileFormat)
def test_rows_are_written_as_they_come_and_an_interrupt_leaves_nothing(tmp_path: Path, file_format: FileFormat) -> None:
    schema = pa.schema({"t": pa.timestamp("us")})

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"t": datetime(2026, 1, 1)}], schema)  # noqa: DTZ001
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), appearing(tmp_path / "x") as unfinished:
        write_rows(unfinished, schema, rows(), file_format)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(GpuAgentError, match=r"x: No space"), appearing(tmp_path / "x"):
        write_rows(Path("/dev/full"), pa.schema([("a", pa.int64())]), [], FileFormat.CSV)
    assert list(tmp_path.iterdir()) == []
