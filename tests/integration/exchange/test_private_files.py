"""Access to files: what holds runs is for its owner alone, and what a user writes for others is as that user says."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuagent_collector.present.new_files import follow_user, for_others, for_owner_alone
from tests.integration.exchange.conftest import BOTH_KINDS, NameStore, Run
from tests.support.servers import Node

pytestmark = pytest.mark.slow


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Give new files to everybody, as most systems do."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mode & 0o777 for path in folder.rglob("*")}


def open_to_others(folder: Path) -> list[str]:
    return [f"{name} {mode:o}" for name, mode in modes(folder).items() if mode & 0o077]


@BOTH_KINDS
@pytest.mark.usefixtures("open_umask")
def test_copies_of_a_store_are_for_its_owner_alone(site: str, name_store: NameStore, run: Run, tmp_path: Path) -> None:
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    backup, folder, merged = tmp_path / "copy.duckdb", tmp_path / "exported", name_store("merged")
    steps = (
        ("backup", str(backup), "--store", site),
        ("export", "--parquet", str(folder), "--store", site),
        ("import", str(folder), "--store", merged),
        ("delete", "--experiment", "gan", "--yes", "--store", merged),
        ("compact", "--store", merged, "--keep", "1d"),
        ("restore", str(backup), "--store", str(tmp_path / "restored.duckdb")),
    )
    for step in steps:
        code, printed = run(*step)
        assert code == 0, printed
        assert open_to_others(tmp_path) == [], step
    assert {"copy.duckdb", "exported", "restored.duckdb"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.usefixtures("open_umask")
def test_what_a_user_writes_for_others_is_as_the_user_s_umask_says(site: str, run: Run, tmp_path: Path) -> None:
    rows, page = tmp_path / "rows.csv", tmp_path / "page.html"
    for words in (("query", "SELECT run_id FROM runs", "--output", str(rows)), ("report", str(page))):
        code, printed = run(*words, "--store", site)
        assert code == 0, printed
    assert {path.stat().st_mode & 0o777 for path in (rows, page)} == {0o644}


@pytest.mark.usefixtures("open_umask")
def test_a_collector_s_files_are_for_its_owner_alone(node: Node) -> None:
    collector = node.serve(options=("--audit-log", "audit", "--store", str(node.store)))
    (node.folder / "collector.log").unlink()  # the test's own
    assert open_to_others(node.folder) == []
    node.stop(collector)
    assert open_to_others(node.folder) == []


@pytest.mark.usefixtures("open_umask")
def test_files_of_a_store_that_several_users_share_are_as_the_user_says() -> None:
    with for_owner_alone():
        assert (os.umask(0o077), for_others(0o777)) == (0o077, 0o755)
        follow_user()
        assert os.umask(0o022) == 0o022
    assert (os.umask(0o022), for_others(0o666)) == (0o022, 0o644)


def test_what_is_written_where_another_left_a_link_replaces_the_link(site: str, run: Run, tmp_path: Path) -> None:
    mine, shared = tmp_path / "mine", tmp_path / "shared"
    mine.write_text("mine")
    shared.mkdir()
    for name in ("rows.csv", ".copy.duckdb.part", ".copy.duckdb.part.wal"):
        (shared / name).symlink_to(mine)
    (shared / "copy.duckdb").symlink_to(tmp_path / "elsewhere")
    for words in (("query", "SELECT 1", "--force", "--output", "rows.csv"), ("backup", "copy.duckdb")):
        code, printed = run(*words[:-1], str(shared / words[-1]), "--store", site)
        assert code == 0, printed
        assert not (shared / words[-1]).is_symlink()
    assert mine.read_text() == "mine"
    assert {path.name for path in shared.iterdir()} == {"rows.csv", "copy.duckdb"}
    assert not (tmp_path / "elsewhere").exists()
