"""`compare`, `peers` and `history` of jobs that nobody launched through gpuagent: they are taken as runs are."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.compare.filled import Fill, add_job, add_nightly
from tests.integration.compare.synthetic import SyntheticStore
from tests.support.commands import Collector, made_up

DAY = 86400.0
TRAIN: dict[str, Any] = {"title": "train", "user_name": "alice", "held_cores": 16.0}
CONTAINER = "7e7d1054" * 8

Asked = Callable[..., dict[str, Any]]


Filled = Callable[[Fill], Path]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the store."""
    return tmp_path / "runs.duckdb"


def test_the_figures_of_a_job_are_placed_among_those_of_jobs_like_it(path: Path, ask: Asked) -> None:
    with made_up(path) as store:
        nodes = [store.node(name, "hpc", gpus=["NVIDIA H200"] * 2) for name in ("gpu-1", "gpu-2")]
        for number in range(4):
            add_job(store, nodes[number % 2], f"{4711 + number}", 0, 3600 + 60 * number, busy=[50.0, 50.0], **TRAIN)
        others: tuple[dict[str, Any], ...] = (
            {"user_name": "bob"},
            {"title": "eval"},
            {"held_cores": 8.0},
            {"busy": [50.0]},
        )
        for number, other in enumerate(others):
            add_job(store, nodes[0], f"{4800 + number}", 0, 9999, **{"busy": [50.0, 50.0], **TRAIN, **other})
    found = ask(path, "peers", "4714")
    figures = {each["figure"]: (each["value"], each["peers_median"]) for each in found["figures"]}
    assert (found["run_id"], found["workload"], found["peer_runs"]) == ("job 4714", "train", 3)
    assert figures["run_seconds"] == (3780, 3660)
    assert figures["gpu_utilization_percent"] == (50, 50)
    assert figures["gpu_energy_run_joules"] == (300 * 3780 * 2, 300 * 3660 * 2)
    assert figures["process_cpu_cores"] == (2, 2)
    assert not figures.keys() & {"throughput", "step_seconds", "gpu_power_watts"}


def test_what_was_not_counted_of_a_job_is_absent(path: Path, ask: Asked) -> None:
    with made_up(path) as store:
        node = store.node("gpu-1", "hpc", gpus=["NVIDIA H200"])
        for number in range(2):
            add_job(store, node, f"{4711 + number}", 0, 3600, busy=[50.0], **TRAIN)
        for row in (*store.rows["owners"], *store.rows["owner_samples"]):
            row.update(dict.fromkeys(row.keys() & {"gpu_seconds", "energy_joules", "memory_max_bytes"}))
    figures = {each["figure"] for each in ask(path, "peers", "4711")["figures"]}
    assert "run_seconds" in figures
    assert not figures & {"gpu_utilization_percent", "gpu_energy_run_joules", "process_anonymous_peak_bytes", "gpus"}


def add_namesakes(store: SyntheticStore) -> None:
    node = store.node("gpu-1", "hpc")
    jobs = {"build.service": "unit", CONTAINER: "podman", "vision/train-0": "pod", "77_3": "slurm", "9": "slurm"}
    for job, kind in jobs.items():
        title: dict[str, Any] = {"title": "train"} if job == "9" else {}
        add_job(store, node, job, 0, 60, kind=kind, user_name="alice", **title)


@pytest.mark.parametrize("name", ["gpu-1/build.service", CONTAINER[:12], "vision/train-0", "77_3", "train"])
def test_a_job_is_found_by_every_name_that_it_has(filled: Filled, ask: Asked, name: str) -> None:
    expected = {CONTAINER[:12]: CONTAINER, "train": "9"}.get(name, name)
    assert ask(filled(add_namesakes), "peers", name)["run_id"] == f"job {expected}"


def test_a_name_that_a_run_has_is_the_run_s(path: Path, ask: Asked) -> None:
    with made_up(path) as store:
        add_nightly(store)
        node = store.node("gpu-9", "hpc")
        store.run("run-1", node, workload="train", start_seconds=0)
    assert ask(path, "history", "train")["series"][0]["node"] == "gpu-9"
    assert [one["node"] for one in ask(path, "history", "train", "--jobs")["series"]] == ["hpc", "hpc"]


def test_the_history_of_a_job_has_the_change_of_those_like_it_on_all_nodes(path: Path, ask: Asked) -> None:
    with made_up(path) as store:
        add_nightly(store)
        for night, row in enumerate(store.rows["sessions"]):
            row["driver_version"] = f"{570 + night}"
    (series,) = ask(path, "history", "4703")["series"]
    assert [(one["values"], one["changed"]) for one in series["levels"]] == [(9, []), (7, [])]
    assert series["parameters"] == {"gpus": 2, "user": "alice"}


def test_two_jobs_are_compared_although_users_and_names_differ(path: Path, ask: Asked) -> None:
    with made_up(path) as store:
        node = store.node("gpu-1", "hpc", gpus=["NVIDIA H200"])
        add_job(store, node, "4711", 0, 3600, busy=[50.0], **TRAIN)
        add_job(store, node, "4712", 9000, 1800, busy=[90.0], **{**TRAIN, "user_name": "bob", "title": "eval"})
    found = ask(path, "compare", "4711", "4712")
    (test,) = found["tests"]
    assert (found["by"], found["sides"]) == ("run", ["job 4711", "job 4712"])
    assert (found["primary_metric"], test["verdict"]) == ("run_seconds", "n too small")
    assert test["estimate"] == pytest.approx(0.5)


def add_more_users(store: SyntheticStore) -> None:
    """Add jobs of fewer cores, of another name, and of another user, three each, to those of each night."""
    add_nightly(store)
    node = store.node("gpu-9", "hpc", gpus=["NVIDIA H200"] * 2)
    others: list[dict[str, Any]] = [
        {"held_cores": 8.0, "user_name": "carol"},
        {"title": "eval"},
        {"user_name": "carol"},
    ]
    for first, other in zip((4900, 4910, 4920), others, strict=True):
        for number in range(3):
            job = {**TRAIN, "title": "sweep", **other}
            add_job(store, node, f"{first + number}", 3600 * number, 600, busy=[9.0, 9.0], **job)


@pytest.mark.parametrize(
    ("arguments", "sides"),
    [
        (("--by", "user", "--workload", "train"), ["alice", "bob"]),
        (("--by", "node", "--workload", "4711", "--where", "node_count = 1"), ["gpu-1", "gpu-2", "gpu-3"]),
        (("--by", "limits", "--jobs"), ["8 CPUs", "16 CPUs"]),
        (("train", "eval"), ["train", "eval"]),
    ],
)
def test_jobs_are_compared_by_what_they_differ_in(
    filled: Filled, ask: Asked, arguments: tuple[str, ...], sides: list[str]
) -> None:
    found = ask(filled(add_more_users), "compare", *arguments)
    assert found["sides"] == sides
    assert {one["code"] for one in found["warnings"]} >= {"jobs"}
    assert not {one["code"] for one in found["warnings"]} & {"no_throughput"}


def test_the_costs_of_jobs_are_those_that_each_has_alone(path: Path, ask: Asked, tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("- {platform: hpc, currency: EUR, instance_hour: 4}\n")
    with made_up(path) as store:
        node = store.node("gpu-1", "hpc", gpus=["NVIDIA H200"] * 2)
        for number in range(2):
            add_job(store, node, f"{4711 + number}", 0, 3600 * (number + 1), busy=[50.0], **TRAIN)
    found = ask(path, "compare", "4711", "4712", "--prices", str(prices), "--all")
    (row,) = [row for row in found["blocks"][0]["metrics"] if row["metric"] == "cost_per_run_eur"]
    costs = [ask(path, "job", job, "--prices", str(prices))["cost"] for job in ("4711", "4712")]
    assert [figure["median"] for figure in row["sides"].values()] == costs == [2, 4]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("peers 4999", "has not ended"),
        ("compare 4711 nothing", "no job is called nothing"),
        ("peers 4711 --each gpu", "leave out --each"),
        ("peers 4711 --reference", "leave out --reference"),
        ("compare --by user --experiment pilot", "leave out --experiment"),
        ("compare --by user --where 'nope = 1'", "no column nope"),
        ("compare --by user --where 'gpus_held > 99'", "no job that meets"),
    ],
)
def test_what_cannot_be_compared_says_why(filled: Filled, collector: Collector, command: str, message: str) -> None:
    name, *arguments = shlex.split(command)
    code, out, err = collector(name, filled(add_nightly), *arguments, columns=200)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    ("command", "following"),
    [("job", "peers"), ("peers", "history"), ("history", "peers"), ("compare 4714", "peers")],
)
def test_the_next_command_of_a_job_is_its_place_among_those_like_it(
    filled: Filled, collector: Collector, command: str, following: str
) -> None:
    name, *arguments = command.split()
    _, out, _ = collector(name, filled(add_nightly), *arguments, "4715", columns=200)
    assert f"collector {following}" in out.splitlines()[-1]


def test_all_jobs_like_one_are_listed(filled: Filled, ask: Asked) -> None:
    assert len(ask(filled(add_nightly), "job", "4715")["like"]) == 15
