"""What is not a whole export of ours is refused in words, and nothing of it is stored."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpuagent_collector.exchange.export import ExportError
from gpuagent_collector.store import Store
from tests.integration.exchange.conftest import Run, two_nodes
from tests.integration.exchange.sites import content, export_store, import_folder, write_site

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    write_site(str(folder / "site.duckdb"), two_nodes)
    export_store(str(folder / "site.duckdb"), folder / "export")
    return folder / "export"


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    return shutil.copytree(exported, tmp_path / "export")


def refusal(folder: Path) -> str:
    """Return why an export is refused; nothing may have been made of it."""
    store = folder.parent / "other.duckdb"
    with pytest.raises(ExportError) as error:
        import_folder(folder, str(store))
    assert not store.exists()
    return str(error.value)


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def replace(folder: Path, table: str, rows: pa.Table) -> None:
    file = folder / f"{table}.parquet"
    pq.write_table(rows, file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    entry = {"rows": rows.num_rows, "size_bytes": file.stat().st_size, "sha256": digest}
    edit(folder, lambda manifest: manifest["tables"].update({table: entry}))


@pytest.mark.parametrize("seed", range(12))
def test_a_file_cut_short_anywhere_is_refused(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    file = chance.choice(sorted(folder.iterdir()))
    file.write_bytes(file.read_bytes()[: chance.randrange(file.stat().st_size)])
    assert file.name in refusal(folder)


def flip_bit(file: Path) -> None:
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    file.write_bytes(damaged)


def link_elsewhere(file: Path) -> None:
    file.symlink_to(file.rename(file.parent.parent / "elsewhere"))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (flip_bit, "was cut short or changed"),
        (Path.unlink, "lacks the file steps.parquet"),
        (link_elsewhere, "lacks the file steps.parquet"),
        (lambda file: edit(file.parent, lambda manifest: manifest.update(schema_version=0)), "upgrade it"),
        (lambda file: edit(file.parent, lambda manifest: manifest.update(schema_version=10**6)), "upgrade it"),
        (lambda file: edit(file.parent, lambda manifest: manifest["tables"].pop("steps")), "'steps' is missing"),
    ],
    ids=["a changed byte", "a missing file", "a link", "no schema", "a later schema", "a table missing"],
)
def test_a_damaged_export_is_refused_with_the_reason(
    folder: Path, damage: Callable[[Path], object], words: str
) -> None:
    damage(folder / "steps.parquet")
    assert words in refusal(folder)


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "marks", "steps; DROP TABLE steps", "new_table", ""]
)
def test_a_table_that_is_not_exchanged_is_refused(folder: Path, name: str) -> None:
    edit(folder, lambda manifest: manifest["tables"].update({name: manifest["tables"]["steps"]}))
    assert repr(name) in refusal(folder)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '"x"',
        "{}",
        "[" * 100_000,
        '{"format": "gpuagent export"}',
        '{"format": "other", "tables": {}}',
        "\xff",
    ],
    ids=lambda text: text[:12],
)
def test_something_else_in_place_of_the_manifest_is_refused(folder: Path, text: str) -> None:
    (folder / "manifest.json").write_text(text, encoding="latin-1")
    assert "`collector export`" in refusal(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest.update(schema_version="1"),
        lambda manifest: manifest.update(schema_version=True),
        lambda manifest: manifest["tables"]["steps"].update(rows="many"),
        lambda manifest: manifest["tables"]["steps"].pop("sha256"),
        lambda manifest: manifest["tables"].update(steps=None),
        lambda manifest: manifest.update(more=1),
    ],
)
def test_a_manifest_of_the_wrong_types_is_refused(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    edit(folder, change)
    assert "`collector export`" in refusal(folder)


def test_rows_that_do_not_fit_the_schema_are_refused(folder: Path) -> None:
    steps = pq.read_table(folder / "steps.parquet")
    replace(folder, "steps", steps.append_column("colour", pa.nulls(steps.num_rows, pa.string())))
    assert "unknown column 'colour'" in refusal(folder)
    replace(folder, "steps", steps.drop_columns(["step"]))
    assert "lacks the column 'step'" in refusal(folder)
    replace(folder, "steps", steps.set_column(0, "session_id", pa.nulls(steps.num_rows, pa.string())))
    assert "export, not int64" in refusal(folder)


def test_what_only_the_store_finds_wrong_leaves_it_as_it_was(folder: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "other.duckdb")
    write_site(store, lambda site: site.run("mine", site.node("n", "p"), start_seconds=0))
    before = content(store)
    events = pq.read_table(folder / "run_events.parquet")
    broken = pa.array(["{not json"] * events.num_rows)
    replace(folder, "run_events", events.set_column(events.column_names.index("detail"), "detail", broken))
    with pytest.raises(Exception, match="is unchanged"):
        import_folder(folder, store)
    assert content(store) == before


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [("empty", 2, "(no manifest.json)"), ("text.txt", 1, "is of no known format; it can be aiperf, ")],
)
def test_what_cannot_be_imported_is_one_sentence(tmp_path: Path, source: str, code: int, words: str, run: Run) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("hello")
    ended, said = run("import", str(tmp_path / source), "--store", str(tmp_path / "s.duckdb"))
    assert (ended, len(said.splitlines())) == (code, 1)
    assert words in said


def test_a_lake_is_as_it_was_after_a_failure_too(folder: Path, tmp_path: Path) -> None:
    store = f"ducklake:{tmp_path}/lake"
    Store.open(store).close()
    states = pq.read_table(folder / "run_requests.parquet")
    broken = pa.array(["{not json"] * states.num_rows)
    replace(folder, "run_requests", states.set_column(states.column_names.index("labels"), "labels", broken))
    with pytest.raises(Exception, match="is unchanged"):
        import_folder(folder, store)
    assert not any(content(store).values())
