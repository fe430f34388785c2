"""Files of stores as sides of a comparison, and of a report."""

import json
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuagent_collector.schema import load_migrations
from gpuagent_collector.store.store import Store
from tests.support.commands import made_up
from tests.unit.cli_collector.conftest import Collector

# Platform and throughput of each file.
MADE = {"a": ("satori", 1000.0), "b": ("openshift", 1000.0), "there": ("satori", 2000.0)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    for number, (name, (platform, throughput)) in enumerate(MADE.items()):
        with made_up(folder / f"{name}.duckdb") as store:
            store.keys = 100 * number  # of sessions and nodes, which are random in others
            node = store.node(f"{name}-node", platform)
            for repeat in range(4):
                store.run(f"{name}-{repeat}", node, start_seconds=20 * repeat, throughput=throughput + repeat)
    return folder


@pytest.fixture
def put(made: Path, tmp_path: Path) -> Callable[[str], str]:
    """Return a function that copies a file that was made, and returns its path."""
    return lambda name: str(shutil.copy(made / f"{name}.duckdb", tmp_path))


def test_two_files_of_equal_platforms_are_sides_named_by_file(collector: Collector, put: Callable[[str], str]) -> None:
    here, there = put("a"), put("there")
    before = Path(here).read_bytes()
    outcome = collector("compare", here, there, "--json")
    (test,) = json.loads(outcome.out)["tests"]
    assert (test["baseline"], test["side"]) == ("a.duckdb", "there.duckdb")
    assert test["verdict"] == "differs"
    assert Path(here).read_bytes() == before
    # Sides of the user's own.
    own = collector("compare", here, there, "--by", "node").out
    assert "a-node" in own
    assert "there-node" in own


def test_two_files_of_two_platforms_are_these_and_make_a_report(
    collector: Collector, put: Callable[[str], str], tmp_path: Path
) -> None:
    files = put("a"), put("b")
    for words in (files, ("two.html", *files), (*files, "three.html")):
        assert collector("report", *words).code == 0
    for page in ("report.html", "two.html", "three.html"):
        text = (tmp_path / "empty" / page).read_text()
        assert "openshift" in text
        assert "a.duckdb and b.duckdb" in text


@pytest.mark.parametrize(
    "words",
    [
        ("runs",),
        *(pytest.param(words, marks=pytest.mark.slow) for words in (("plan", "mnist"), ("history",))),
        pytest.param(("query", "sql", "FROM runs"), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_what_reads_takes_files(collector: Collector, put: Callable[[str], str], words: tuple[str, ...]) -> None:
    files = put("a"), put("b")
    outcome = collector(*words, *files)
    assert (outcome.code, "a.duckdb and b.duckdb" in outcome.err) == (0, True), outcome.err


def test_one_file_is_read_like_a_store(collector: Collector, put: Callable[[str], str]) -> None:
    file = put("a")
    assert collector("compare", file) == collector("compare", "--store", file)


def test_commands_that_come_next_name_the_files(collector: Collector, put: Callable[[str], str]) -> None:
    files = put("a"), put("b")
    answered = json.loads(collector("recommend", *files, "--json").out)
    assert {side["side"] for side in answered["rankings"][0]["sides"]} == {"satori", "openshift"}
    *_, command = collector("recommend", *files).out.partition("Next:\n")
    assert set(files) <= set(shlex.split(command))


def test_new_runs_are_stored_in_the_file_of_their_platform(collector: Collector, tmp_path: Path) -> None:
    files = {"cloud": tmp_path / "a file.duckdb", "onprem": tmp_path / "b.duckdb"}
    for number, (platform, path) in enumerate(files.items()):
        with made_up(path) as store:
            store.keys = 100 * number
            node = store.node(os.uname().nodename, platform)
            for repeat in range(4 - number):
                store.run(f"{platform}-{repeat}", node, start_seconds=20 * repeat, throughput=1000.0 + repeat)
    *_, command = collector("plan", *map(str, files.values()), "--effect", "20").out.partition("Next:\n")
    words = shlex.split(command.replace("\\\n", ""))
    assert words[:4] == ["gpuagent", "bench", "--store", str(files["onprem"])]
    assert words[-2:] == ["--platform", "onprem"]


def test_prices_that_do_not_count_are_said_beside_csv(
    collector: Collector, put: Callable[[str], str], tmp_path: Path
) -> None:
    prices = tmp_path / "p.yaml"
    prices.write_text("- {platform: satori, currency: USD, instance_hour: 1}\n")
    outcome = collector("recommend", put("a"), put("b"), "--prices", str(prices), "--format", "csv")
    assert (outcome.code, "no entry for the platform openshift" in outcome.err) == (0, True), outcome.err


def test_several_workloads_are_named_where_one_is_asked_for(collector: Collector, tmp_path: Path) -> None:
    with made_up(tmp_path / "two.duckdb") as store:
        for workload in ("gcn", "mnist"):
            store.run(workload, store.node("spruce", "lab"), start_seconds=store.keys * 20, workload=workload)
    outcome = collector("recommend", str(tmp_path / "two.duckdb"))
    assert (outcome.code, "gcn, mnist" in outcome.err) == (2, True), outcome.err


def test_what_are_no_two_sides_is_refused(collector: Collector, put: Callable[[str], str], tmp_path: Path) -> None:
    here = put("a")
    copy = str(shutil.copy(here, tmp_path / "copy.duckdb"))
    text = tmp_path / "text.duckdb"
    text.write_text("no store")
    for words, said in (
        ([here, copy], "4 runs in common"),
        ([here, "none.duckdb"], "no store none.duckdb"),
        ([here, str(text)], "text.duckdb is no store"),
        ([here, copy, "--store", here], "--store"),
    ):
        outcome = collector("compare", *words)
        assert (outcome.code, said in outcome.err.splitlines()[-1]) == (2, True), outcome.err


def test_a_report_is_not_written_into_the_name_of_a_missing_store(
    collector: Collector, put: Callable[[str], str]
) -> None:
    outcome = collector("report", "none.duckdb", put("a"))
    assert (outcome.code, "no store none.duckdb" in outcome.err) == (2, True), outcome.err


def test_an_answer_is_written_to_a_file_too(collector: Collector, put: Callable[[str], str], tmp_path: Path) -> None:
    store, copy = put("a"), tmp_path / "a.json"
    printed = collector("compare", store, "-o", str(copy)).out
    assert printed and json.loads(copy.read_text()) == json.loads(collector("compare", store, "--json").out)
    assert "--force" in collector("compare", store, "-o", str(copy)).err
    assert "collector report" in collector("compare", store, "-o", "a.html").err


def test_one_file_of_an_older_schema_is_read_as_two_are(collector: Collector, tmp_path: Path) -> None:
    path = tmp_path / "old.duckdb"
    with Store.open(str(path), migrations=load_migrations()[:-1]) as store, store.connect() as connection:
        connection.execute("INSERT INTO sessions (session_id, node_id, platform) VALUES (1, 1, 'satori')")
        connection.execute(
            "INSERT INTO run_requests (session_id, node_id, run_id, workload) VALUES (1, 1, 'mnist-1', 'mnist')"
        )
    before = path.read_bytes()
    outcome = collector("query", "--store", str(path), "SELECT run_id, labels FROM runs", "--format", "csv")
    assert (outcome.code, outcome.out.split()) == (0, ['"run_id","labels"', '"mnist-1",'])
    assert "an upgraded copy of old.duckdb" in outcome.err
    assert path.read_bytes() == before
