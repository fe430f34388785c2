"""What one site exports, from a file or a running collector, another has after importing it."""

import json
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gpuagent_collector.errors import StoreError
from gpuagent_collector.exchange import tables
from gpuagent_collector.exchange.export import export
from gpuagent_collector.exchange.tables import RunFilter, exchanged_tables, newest_version
from gpuagent_collector.query.execute import Limits
from gpuagent_collector.query.remote import RemoteReader
from gpuagent_collector.store import Store
from gpuagent_common.errors import GpuAgentError, MisuseError
from tests.integration.compare.synthetic import EPOCH
from tests.integration.exchange.conftest import BOTH_KINDS, NameStore
from tests.integration.exchange.sites import added, content, execute, export_store, import_folder, write_site
from tests.support.query_servers import serving_queries
from tests.support.stores import open_store

pytestmark = pytest.mark.slow

MINUTE = timedelta(minutes=1)


@BOTH_KINDS
def test_a_store_is_the_same_after_a_journey_through_files(site: str, name_store: NameStore, tmp_path: Path) -> None:
    export_store(site, tmp_path / "export")
    merged = import_folder(tmp_path / "export", name_store("other"))
    whole = content(site)
    assert added(merged) == sum(map(len, whole.values())) > 500
    assert added(import_folder(tmp_path / "export", name_store("other"))) == 0
    assert content(name_store("other")) == whole


def test_what_comes_back_is_known(site: str, name_store: NameStore, tmp_path: Path) -> None:
    export_store(site, tmp_path / "there")
    import_folder(tmp_path / "there", name_store("other"))
    assert execute(name_store("other"), "FROM marks") == []
    export_store(name_store("other"), tmp_path / "back")
    assert added(import_folder(tmp_path / "back", site)) == 0


def test_the_manifest_says_what_there_is(site: str, tmp_path: Path) -> None:
    manifest = export_store(site, tmp_path / "export")
    assert manifest.tables.keys() == exchanged_tables(newest_version()).keys()
    assert "marks" not in manifest.tables
    written = json.loads((tmp_path / "export/manifest.json").read_text())
    assert written["schema_version"] == newest_version()
    assert written["chosen"] == "everything"
    assert written["first_time"] == "2030-01-01T12:00:00.000000Z"
    rows = {name: pq.ParquetFile(tmp_path / f"export/{name}.parquet").metadata.num_rows for name in manifest.tables}
    assert {name: entry["rows"] for name, entry in written["tables"].items()} == rows
    assert rows["core_samples"] == 0 < rows["gpu_samples"]


def test_large_tables_are_read_in_slices_without_losing_or_doubling_a_row(
    site: str, name_store: NameStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_store(site, tmp_path / "whole")
    monkeypatch.setattr(tables, "SLICE_ROWS", 7)
    export_store(site, tmp_path / "sliced")
    assert pq.ParquetFile(tmp_path / "sliced/gpu_samples.parquet").num_row_groups > 10
    import_folder(tmp_path / "sliced", name_store("other"))
    assert content(name_store("other")) == content(site)
    assert added(import_folder(tmp_path / "whole", name_store("other"))) == 0


def test_rows_without_a_time_travel_too(name_store: NameStore, tmp_path: Path) -> None:
    with open_store(name_store("site")) as store, store.connect() as connection:
        connection.execute("INSERT INTO run_events BY NAME SELECT 'x' AS name, 1 AS session_id FROM range(3)")
        connection.execute("INSERT INTO run_events BY NAME SELECT 'y' AS name, now()::TIMESTAMP AS time")
    export_store(name_store("site"), tmp_path / "export")
    assert added(import_folder(tmp_path / "export", name_store("other"))) == 4
    assert added(import_folder(tmp_path / "export", name_store("other"))) == 0
    assert content(name_store("other")) == content(name_store("site"))


def test_a_chosen_run_brings_all_of_it_and_no_other_run(site: str, name_store: NameStore, tmp_path: Path) -> None:
    export_store(site, tmp_path / "export", RunFilter(run_ids=["satori-first"]))
    import_folder(tmp_path / "export", name_store("other"))
    tables = exchanged_tables(newest_version())
    all_of_it, got = content(site), content(name_store("other"))
    for name in (name for name, table in tables.items() if table.is_of_runs):
        column = list(tables[name].types).index("run_id")
        own = {row: count for row, count in all_of_it[name].items() if row[column] == "satori-first"}
        assert got[name] == own, name
    assert len(got["sessions"]) == 1
    assert len(got["session_devices"]) == 2
    times = {row[2] for row in got["gpu_samples"]}
    assert (min(times), max(times)) == (EPOCH, EPOCH + timedelta(seconds=15.5))
    assert sum(got["gpu_samples"].values()) == 2 * 32


def test_filters_are_taken_together(site: str, tmp_path: Path) -> None:
    def runs(name: str, chosen: RunFilter) -> set[str | None]:
        export_store(site, tmp_path / name, chosen)
        return set(pq.read_table(tmp_path / name / "run_requests.parquet")["run_id"].to_pylist())

    assert runs("a", RunFilter(platforms=["satori"])) == {"satori-first", "satori-second"}
    assert runs("b", RunFilter(platforms=["satori"], since=EPOCH + MINUTE)) == {"satori-second"}
    assert runs("c", RunFilter(experiments=["gan", "other"], since=EPOCH)) == {
        "satori-first",
        "satori-second",
        "openshift-first",
    }
    with pytest.raises(MisuseError, match="no run matches"):
        runs("d", RunFilter(platforms=["openshift"], experiments=["gan"]))
    assert not (tmp_path / "d").exists()


def test_a_run_in_two_exports_is_summarised_with_all_of_its_rows(name_store: NameStore, tmp_path: Path) -> None:
    """The second site has ended the run as lost, and computed its figures, before the rest of it came."""
    write_site(name_store("site"), lambda store: store.run("r", store.node("n", "p"), start_seconds=0))
    export_store(name_store("site"), tmp_path / "whole")
    execute(
        name_store("other"),
        "INSERT INTO run_metrics BY NAME SELECT 'r' AS run_id, TIMESTAMP '2040-01-01' AS computed_at, "
        "'cpu_percent' AS metric, 1.0 AS value",
    )
    import_folder(tmp_path / "whole", name_store("other"))
    with Store.open(name_store("other"), read_only=True) as store, store.connect() as connection:
        shown = dict(connection.execute("SELECT metric, value FROM metrics").fetchall())
    before = content(name_store("site"))["run_metrics"]
    assert set(shown) == {row[2] for row in before}
    assert shown["cpu_percent"] > 30


def test_a_folder_with_something_in_it_is_left_alone(site: str, tmp_path: Path) -> None:
    (tmp_path / "export").mkdir()
    export_store(site, tmp_path / "export")
    before = (tmp_path / "export/manifest.json").read_text()
    with pytest.raises(MisuseError, match="exists already"):
        export_store(site, tmp_path / "export")
    assert (tmp_path / "export/manifest.json").read_text() == before


def test_an_export_that_fails_leaves_nothing(site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise GpuAgentError("the collector has gone")

    monkeypatch.setattr("gpuagent_collector.exchange.export.Manifest.write", fail)
    (tmp_path / "exports").mkdir()
    with pytest.raises(GpuAgentError, match="has gone"):
        export_store(site, tmp_path / "exports/one")
    assert list((tmp_path / "exports").iterdir()) == []


def test_a_store_that_a_collector_holds_is_not_imported_into(tmp_path: Path) -> None:
    name = str(tmp_path / "held.duckdb")
    write_site(name, lambda store: store.run("r", store.node("n", "p"), start_seconds=0))
    export_store(name, tmp_path / "export")
    held = content(name)
    with Store.open(name, read_only=True), pytest.raises(StoreError):
        import_folder(tmp_path / "export", name)
    assert content(name) == held


def test_rows_that_stay_in_the_log_of_a_full_disk_are_reported_and_readable(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = str(small_disk / "s.duckdb")
    execute(
        name, "INSERT INTO core_samples BY NAME SELECT i AS core, hash(i) / 3 AS cpu_percent FROM range(50000) r(i)"
    )
    assert f"{name}.wal has rows that" in caplog.text
    assert execute(name, "SELECT count(*) FROM core_samples") == [(50_000,)]


def export_live(store_name: str, folder: Path, limits: Limits, chosen: RunFilter | None = None) -> None:
    with (
        open_store(store_name) as store,
        serving_queries(store, limits) as server,
        closing(RemoteReader(server.address, "no token")) as reader,
    ):
        export(reader, folder, chosen, lambda *_: None)


@pytest.mark.parametrize("chosen", [None, RunFilter(platforms=["satori"])], ids=["everything", "a platform"])
def test_a_live_export_is_the_same_as_one_from_the_file(
    site: str, name_store: NameStore, tmp_path: Path, chosen: RunFilter | None
) -> None:
    export_live(site, tmp_path / "live", Limits(), chosen)
    export_store(site, tmp_path / "file", chosen)
    assert added(import_folder(tmp_path / "live", name_store("other"))) > 100
    assert added(import_folder(tmp_path / "file", name_store("other"))) == 0


@pytest.mark.parametrize(
    "limits", [Limits(rows=20), Limits(size_bytes=5_000)], ids=["more rows than an answer", "more bytes than an answer"]
)
def test_what_one_answer_cannot_hold_comes_in_several(
    site: str, name_store: NameStore, tmp_path: Path, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slices are planned larger than the collector allows, as when its limits were lowered, or rows are long."""
    monkeypatch.setattr(tables, "SLICE_ROWS", 40)
    export_live(site, tmp_path / "live", limits)
    import_folder(tmp_path / "live", name_store("other"))
    assert content(name_store("other")) == content(site)


def test_more_equal_rows_than_an_answer_may_have_are_said(site: str, tmp_path: Path) -> None:
    execute(site, "INSERT INTO core_samples BY NAME SELECT TIMESTAMP '2031-01-01' AS time, 1 AS core FROM range(500)")
    with pytest.raises(GpuAgentError, match="more equal rows"):
        export_live(site, tmp_path / "live", Limits(rows=300))
    assert not (tmp_path / "live").exists()
