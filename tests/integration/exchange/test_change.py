"""Removal and edits of runs through a running collector, and of a store itself."""

import json

import pytest

from gpuagent_collector.store import Store
from tests.integration.compare.synthetic import SyntheticStore
from tests.integration.exchange.conftest import NameStore, Run, two_nodes
from tests.integration.exchange.sites import write_site
from tests.support.servers import Node

pytestmark = pytest.mark.slow

_EDITED = "SELECT run_id, workload, labels, note, is_excluded FROM runs ORDER BY run_id"


def test_a_running_collector_removes_and_edits_runs_for_operators_only(node: Node) -> None:
    write_site(str(node.store), two_nodes)
    node.serve()
    said = node.collector("delete", "--run", "satori-first", "--yes")
    assert said.stdout.startswith("the collector at 127.0.0.1:") and said.stdout.endswith(" rows removed\n")
    assert "  1 run\n" in said.stderr
    assert "run satori-first" in node.collector("delete", "--run", "satori-first", code=2).stderr
    node.collector("run", "edit", "satori-second", "--note", "warm", "--label", "rack=7", "--exclude")
    node.collector("run", "edit", "satori-second", "--label", "who=", "--name", "other")
    node.collector("run", "edit", "openshift-first", "--note", "x", "--exclude")
    node.collector("run", "edit", "openshift-first", "--note", "", "--include")
    edited = node.ask(_EDITED)
    assert [(row["run_id"], row["workload"], row["note"], row["is_excluded"]) for row in edited] == [
        ("openshift-first", "mnist", "", False),
        ("satori-second", "other", "warm", True),
    ]
    assert json.loads(edited[1]["labels"]) == {"rack": "7"}
    assert "run nope" in node.collector("run", "edit", "nope", "--exclude", code=2).stderr
    assert "nothing to edit" in node.collector("run", "edit", "nope", code=2).stderr
    viewer = node.folder / "viewer"
    viewer.write_text(node.collector("tokens", "create", "viewer", "--name", "v").stdout)
    viewer.chmod(0o600)
    for command in (("delete", "--node", "satori-1", "--yes"), ("run", "edit", "satori-second", "--include")):
        refused = node.collector(*command, "--token-file", str(viewer), code=1).stderr
        assert "scope operator" in refused
    assert node.ask(_EDITED) == edited


def test_excluded_runs_are_in_no_figure_and_a_warning_counts_them(
    name_store: NameStore, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(store: SyntheticStore) -> None:
        for platform in ("left", "right"):
            node = store.node(platform, platform)
            for repeat in (1, 2):
                store.run(
                    f"{platform}-{repeat}",
                    node,
                    repeat=repeat,
                    start_seconds=1000 * repeat,
                    parameters={"batch-size": repeat, "lr": 1},
                )
            store.run(f"{platform}-3", node, repeat=3, start_seconds=4000, parameters={"batch-size": 1, "lr": 1})

    site = name_store("other")
    write_site(site, fill)
    for wrong in (
        ("--name", "bad name"),
        ("--note", "two\nlines"),
        ("--label", f"k={'x' * 200}"),
        ("--label", "imported=vllm"),
        ("--label", "imported="),
    ):
        assert run("run", "edit", "left-1", *wrong, "--store", site)[0] == 2
    assert run("run", "edit", "left-1", "--exclude", "--store", site)[0] == 0
    printed = run("compare", "left", "right", "--store", site, "--json")[1]
    document, _ = json.JSONDecoder().raw_decode(printed)
    assert [caveat["text"] for caveat in document["warnings"] if caveat["code"] == "excluded"] == [
        "runs that an operator has excluded: 1 left"
    ]
    monkeypatch.setenv("COLUMNS", "160")
    lines = run("runs", "--store", site)[1].splitlines()
    assert "settings" in lines[0]
    (excluded,) = (line for line in lines if line.startswith("left-1"))
    assert "excluded" in excluded and "batch-size=1" in excluded and "lr=" not in excluded
    with Store.open(site, read_only=True) as store, store.connect() as connection:
        assert connection.execute("SELECT count(*) FROM run_edits").fetchone() == (1,)
