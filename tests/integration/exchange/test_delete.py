"""What is removed on request is gone with all that belongs to it, and nothing else is."""

from functools import partial
from pathlib import Path

import pytest

from gpuagent_collector.exchange.tables import RunFilter, exchanged_tables, newest_version
from gpuagent_collector.store import Store
from tests.integration.compare.synthetic import SyntheticStore
from tests.integration.exchange.conftest import BOTH_KINDS, Run
from tests.integration.exchange.sites import Content, content, execute, export_store, import_folder, write_site

pytestmark = pytest.mark.slow


@pytest.fixture
def delete(run: Run) -> Run:
    return partial(run, "delete", "--store")


def of_runs(full: Content, *run_ids: str) -> Content:
    columns = {name: list(table.types) for name, table in exchanged_tables(newest_version()).items()}
    return {
        name: type(rows)({row: n for row, n in rows.items() if row[columns[name].index("run_id")] in run_ids})
        for name, rows in full.items()
        if "run_id" in columns[name]
    }


@BOTH_KINDS
def test_a_run_goes_with_its_rows_and_samples_and_the_others_stay(site: str, delete: Run) -> None:
    execute(site, "INSERT INTO marks VALUES (1, 9, '2030-01-01')")
    before = content(site)
    code, said = delete(site, "--run", "satori-first", "--yes")
    assert code == 0
    assert "  1 run\n" in said
    after = content(site)
    assert not any(of_runs(after, "satori-first").values())
    assert of_runs(after, "satori-second", "openshift-first") == of_runs(before, "satori-second", "openshift-first")
    samples = {
        name: sum(after[name].values()) for name in ("gpu_samples", "host_samples", "sessions", "session_devices")
    }
    assert samples == {"gpu_samples": 32 * 3, "host_samples": 32 * 2, "sessions": 2, "session_devices": 3}
    removed = sum(map(sum, (rows.values() for rows in before.values()))) - sum(
        map(sum, (rows.values() for rows in after.values()))
    )
    assert f"{removed:,} rows removed" in said
    assert execute(site, "SELECT session_id, number FROM marks") == [(1, 9)]


def test_a_run_may_be_named_by_the_beginning_of_its_identity(site: str, run: Run) -> None:
    on_site = ("--store", site)
    code, said = run("run", "edit", "satori-f", "--note", "warm", *on_site)
    assert (code, "1 run edited" in said) == (0, True), said
    assert execute(site, "SELECT run_id FROM runs WHERE note = 'warm'") == [("satori-first",)]
    for command in (("run", "edit", "satori-", "--note", "x"), ("delete", "--run", "satori-", "--yes")):
        code, said = run(*command, *on_site)
        assert (code, "satori-: satori-first, satori-second" in said) == (2, True), said
    assert run("delete", "--run", "satori-f", "--run", "satori-first", "--yes", *on_site)[0] == 0
    assert execute(site, "SELECT run_id FROM runs ORDER BY ALL") == [("openshift-first",), ("satori-second",)]
    # What was delivered since of a removed run is that run's, also where another begins like it.
    execute(site, "INSERT INTO run_states BY NAME SELECT 'satori-' AS run_id, 'failed' AS status")
    assert run("delete", "--run", "satori-", "--yes", *on_site)[0] == 0
    assert execute(site, "SELECT run_id FROM runs ORDER BY ALL") == [("openshift-first",), ("satori-second",)]


def test_samples_that_another_run_shares_stay(tmp_path: Path, delete: Run) -> None:
    def fill(store: SyntheticStore) -> None:
        node = store.node("n", "p", gpus=["V100"])
        store.run("first", node, start_seconds=0)
        store.run("second", node, start_seconds=8)

    name = str(tmp_path / "s.duckdb")
    write_site(name, fill)
    assert delete(name, "--run", "first", "--yes")[0] == 0
    with Store.open(name, read_only=True) as store, store.connect() as connection:
        seconds = "epoch(min(time) - TIMESTAMP '2030-01-01 12:00:00')::DOUBLE"
        for table in ("gpu_samples", "host_samples", "process_samples"):
            assert connection.execute(f"SELECT {seconds} FROM {table}").fetchone() == (8.0,)


def test_a_run_whose_identity_has_a_comma_is_exported_and_deleted(tmp_path: Path, delete: Run) -> None:
    def fill(store: SyntheticStore) -> None:
        node = store.node("n", "p")
        for number, run_id in enumerate(("a,b", "a", "b")):
            store.run(run_id, node, start_seconds=1000 * number)

    name = str(tmp_path / "s.duckdb")
    write_site(name, fill)
    export_store(name, tmp_path / "export", RunFilter(run_ids=["a,b"]))
    import_folder(tmp_path / "export", str(tmp_path / "other.duckdb"))
    assert all_runs(content(str(tmp_path / "other.duckdb"))) == {"a,b"}
    assert delete(name, "--run", "a,b", "--yes")[0] == 0
    assert all_runs(content(name)) == {"a", "b"}


def test_an_experiment_goes_with_all_its_runs(site: str, delete: Run) -> None:
    assert delete(site, "--experiment", "gan", "--yes")[0] == 0
    assert {row[3] for row in content(site)["run_requests"]} == {"openshift-first"}


@pytest.mark.parametrize("named", ["hostname", "node_id"])
def test_a_node_goes_with_everything_that_came_from_it(site: str, delete: Run, named: str) -> None:
    with Store.open(site, read_only=True) as store, store.connect() as connection:
        (name,) = connection.execute(f"SELECT {named} FROM nodes WHERE platform = 'satori'").fetchone() or ()
    before = content(site)
    assert delete(site, "--node", str(name), "--yes")[0] == 0
    after = content(site)
    assert {row[4] for row in after["sessions"]} == {"openshift-1"}
    assert of_runs(after, "openshift-first") == of_runs(before, "openshift-first") == of_runs(after, *all_runs(after))
    assert sum(after["gpu_samples"].values()) == 32


def test_every_host_that_loses_rows_is_named(tmp_path: Path, delete: Run) -> None:
    def fill(store: SyntheticStore) -> None:
        alder, birch = store.node("alder", "p"), store.node("birch", "p")
        store.run("own", alder, start_seconds=0)
        store.run("of-the-clone", store.beside(alder, hostname="clone"), start_seconds=100)
        for rank, node in enumerate((birch, alder)):
            store.run("joint", node, start_seconds=200, nodes=2, rank=rank)
        store.run("another", birch, start_seconds=300)

    name = str(tmp_path / "s.duckdb")
    write_site(name, fill)
    code, said = delete(name, "--node", "alder", "--yes")
    assert code == 0
    assert "from 3 hosts: alder (2 runs), birch (1 run), clone (1 run)" in said
    assert all_runs(content(name)) == {"another"}


def all_runs(full: Content) -> set[str]:
    return {row[3] for row in full["run_requests"]}


def test_nothing_goes_without_a_yes(site: str, delete: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    before = content(site)
    code, said = delete(site, "--experiment", "gan")
    assert code == 2
    assert "  2 runs\n" in said
    assert "repeat the command with --yes" in said
    monkeypatch.setattr("gpuagent_collector.cli.changing.sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: "n")
    assert delete(site, "--experiment", "gan")[0] == 130
    assert content(site) == before


REFUSED: dict[tuple[str, ...], str] = {
    (): "give one of --run, --experiment and --node",
    ("--run", "a", "--node", "b"): "give one of --run, --experiment and --node",
    ("--run", "satori-first", "--run", "nope", "--yes"): "there is no run nope",
    ("--experiment", "nope", "--yes"): "no run matches",
    ("--node", "nope", "--yes"): "there is no node nope",
}


def test_what_is_not_there_cannot_go(site: str, delete: Run) -> None:
    before = content(site)
    for arguments, words in REFUSED.items():
        code, said = delete(site, *arguments)
        assert code == 2
        assert words in said
    assert content(site) == before


def test_runs_that_have_not_ended_are_pointed_out(tmp_path: Path, delete: Run) -> None:
    name = str(tmp_path / "s.duckdb")
    write_site(name, lambda store: store.run("r", store.node("n", "p"), start_seconds=0, status="running"))
    assert "1 run, 1 of which" in delete(name, "--run", "r", "--yes")[1]


def test_what_was_delivered_of_a_removed_run_since_can_be_removed_too(site: str, delete: Run) -> None:
    assert delete(site, "--run", "satori-first", "--yes")[0] == 0
    execute(site, "INSERT INTO run_states BY NAME SELECT 'satori-first' AS run_id, 'failed' AS status")
    assert "1 row removed" in delete(site, "--run", "satori-first", "--yes")[1]
    assert delete(site, "--run", "satori-first", "--yes")[0] == 2


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, delete: Run) -> None:
    code, said = delete(str(tmp_path / "none.duckdb"), "--run", "r", "--yes")
    assert (code, list(tmp_path.iterdir())) == (1, [])
    assert "is no store" in said
