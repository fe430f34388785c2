"""Exports from a running collector, whose answers are limited."""

from contextlib import closing
from pathlib import Path

import pytest

from gpuagent_collector.exchange import slices
from gpuagent_collector.exchange.belongings import RunFilter
from gpuagent_collector.exchange.export import export
from gpuagent_collector.query.execute import Limits
from gpuagent_collector.query.remote import RemoteReader
from gpuagent_collector.store import Store
from gpuagent_common.errors import GpuAgentError
from tests.integration.exchange.conftest import NameStore
from tests.integration.exchange.sites import added, content, export_store, import_folder
from tests.support.query_servers import serving_queries


def export_live(store_name: str, folder: Path, limits: Limits, chosen: RunFilter | None = None) -> None:
    with (
        Store.open(store_name) as store,
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
    monkeypatch.setattr(slices, "SLICE_ROWS", 40)
    export_live(site, tmp_path / "live", limits)
    import_folder(tmp_path / "live", name_store("other"))
    assert content(name_store("other")) == content(site)


def test_more_equal_rows_than_an_answer_may_have_are_said(site: str, tmp_path: Path) -> None:
    with Store.open(site) as store, store.connect() as connection:
        connection.execute(
            "INSERT INTO core_samples BY NAME SELECT TIMESTAMP '2031-01-01' AS time, 1 AS core FROM range(500)"
        )
    with pytest.raises(GpuAgentError, match="core_samples has more equal rows"):
        export_live(site, tmp_path / "live", Limits(rows=300))
    assert not (tmp_path / "live").exists()
