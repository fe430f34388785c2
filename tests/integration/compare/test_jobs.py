"""The figures of `collector jobs`, `job` and `idle` where states are old, and the commands that they name."""

import shlex
from datetime import datetime, timedelta, timezone
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from gpuagent_collector.answers.job import answer_job
from gpuagent_collector.answers.jobs import answer_idle, answer_jobs, find_jobs
from gpuagent_collector.present.terminal import print_answer
from gpuagent_collector.prices.files import parse_prices
from gpuagent_collector.runs.jobs import Chosen
from gpuagent_collector.web.jobs import Jobs
from tests.integration.compare.synthetic import EPOCH, Node, SyntheticStore

DAY = 86400.0
PRICE = b"- {platform: hpc, currency: EUR, instance_hour: 4}"


def add_old_job(store: SyntheticStore, **facts: Any) -> Node:
    """Add a job that has run for three days, with a busy GPU; its last state is a day and a half old."""
    node = store.node("gpu-1", "hpc", gpus=["NVIDIA H200"], cpu_threads=64)
    known = {"kind": "slurm", "job": "4711", "user_name": "alice", "started_at": EPOCH, "is_held": 1, **facts}
    for gpu in ({}, {"device_id": node.gpus[0]}):
        owner = {"owner_id": 1, **gpu}
        counted = {"gpu_seconds": 1.5 * DAY, "idle_seconds": 0.0} if gpu else {}
        state = {**node.at(1.5 * DAY), **owner, **known, **counted, "observed_seconds": 1.5 * DAY}
        store.rows["owners"].append(state)
        sample = {"gpu_seconds": 3 * DAY, "idle_seconds": 60.0, "idle_now_seconds": 60.0} if gpu else {}
        store.rows["owner_samples"].append({**node.at(3 * DAY), **owner, **sample})
    return node


def test_a_job_whose_last_state_is_old_is_listed_with_the_time_that_it_was_watched(store: SyntheticStore) -> None:
    add_old_job(store)
    for since in (None, timedelta(days=1), timedelta(minutes=5)):
        (job,) = find_jobs(store.ask, Chosen(since=since), None)
        assert (job.state, job.row["seconds"]) == ("running", 3 * DAY)
        assert job.gpu_percent == pytest.approx(100)


def test_a_job_of_an_agent_that_has_stopped_is_lost(store: SyntheticStore) -> None:
    node = add_old_job(store)
    store.rows["session_ends"].append(node.at(3 * DAY))
    (job,) = find_jobs(store.ask, Chosen(), None)
    assert (job.state, job.row["seconds"], job.row["all_running"]) == ("lost", 3 * DAY, 0)
    assert answer_job(store.ask, name="4711").facts["state"] == "lost"


def test_a_job_of_an_agent_that_is_silent_is_lost_although_no_other_reports(store: SyntheticStore) -> None:
    node = store.node("cpu-1", "hpc")
    ago = (datetime.now(timezone.utc).replace(tzinfo=None) - EPOCH).total_seconds()
    for owner_id, seen, ended in ((1, ago - 180, False), (2, ago - 180, True), (3, ago, False)):
        end = {"ended_at": EPOCH + timedelta(seconds=seen)} if ended else {}
        state = {"kind": "slurm", "job": str(owner_id), "observed_seconds": 60.0, **end}
        began = {"started_at": EPOCH + timedelta(seconds=seen - 60)}
        store.rows["owners"].append({**node.at(seen), "owner_id": owner_id, **state, **began})
    states = {job.row["job"]: job.state for job in find_jobs(store.ask, Chosen(), None)}
    assert states == {"1": "lost", "2": "ended", "3": "running"}


def test_kernels_on_gpus_that_a_job_does_not_hold_are_no_use_of_its_own(store: SyntheticStore) -> None:
    node = add_old_job(store)
    (state,) = (row for row in store.rows["owners"] if "device_id" in row)
    store.rows["owners"].append({**state, "device_id": node.gpus[0] + 1000, "is_held": 0})
    (job,) = find_jobs(store.ask, Chosen(), None)
    assert job.gpu_percent == pytest.approx(100)
    assert job.row["gpus_used"] == 2


def test_work_with_no_known_share_of_a_node_has_no_cost(store: SyntheticStore) -> None:
    node = store.node("cpu-1", "hpc", cpu_threads=64)
    unit = {"kind": "unit", "started_at": EPOCH, "observed_seconds": 3600.0}
    for owner_id, cores in ((1, None), (2, 16.0)):
        row = {**node.at(3600), **unit, "owner_id": owner_id, "job": f"{owner_id}.service", "held_cores": cores}
        store.rows["owners"].append(row)
    prices = parse_prices(PRICE, "prices.yaml")
    assert {job.row["job"]: job.cost for job in find_jobs(store.ask, Chosen(), prices)} == {
        "1.service": None,
        "2.service": 1.0,
    }


def test_the_next_command_has_a_hostile_name_as_one_word(store: SyntheticStore) -> None:
    hostile = "1; true $(id)"
    add_old_job(store, job=hostile, user_name=hostile)
    for answer in (answer_jobs(store.ask), answer_idle(store.ask), answer_job(store.ask, name=hostile)):
        assert answer.next
        words = shlex.split(answer.next)
        assert words[:1] == ["collector"]
        assert "1;" not in words


def test_without_jobs_the_next_command_still_leads_on(store: SyntheticStore) -> None:
    store.only_run()
    assert answer_jobs(store.ask).next == "collector nodes"
    assert answer_jobs(store.ask, user="bob").text == "No jobs of bob were seen in 30 days."
    assert answer_jobs(store.ask, user="bob").next == answer_idle(store.ask).next == "collector jobs"


def test_the_pages_of_lists_link_to_each_job(store: SyntheticStore) -> None:
    add_old_job(store, job="vision/<a>")
    pages = Jobs(store.ask, source="runs.duckdb")
    for page in (pages.answer_list({}), pages.answer_idle({})):
        assert b'<a href="/jobs/vision%2F%3Ca%3E">vision/&lt;a&gt;</a>' in bytes(page.body)
    assert b'href="/jobs/' not in bytes(pages.answer({"name": "vision/<a>"}).body)


def test_a_narrow_terminal_has_each_job_in_one_line(store: SyntheticStore) -> None:
    add_old_job(store, job="vision/serve-0123456", title="notebook-of-mine", is_held=None)
    for answer in (answer_jobs(store.ask), answer_idle(store.ask)):
        out = StringIO()
        print_answer(Console(file=out, width=40), answer)
        tables = out.getvalue().partition("\nNext:")[0]
        assert tables.count("vision/serve-0123456") == tables.count("job   ") > 1


def test_a_job_without_gpus_is_told_from_one_whose_gpus_are_unknown(store: SyntheticStore) -> None:
    node = store.node("gpu-1", "hpc", gpus=["NVIDIA H200"], cpu_threads=64)
    known = {"kind": "slurm", "started_at": EPOCH, "observed_seconds": 3600.0, "held_cores": 16.0}
    for owner_id, is_held in ((1, 0), (2, None)):
        row = {**node.at(3600), **known, "owner_id": owner_id, "job": str(owner_id), "is_held": is_held}
        store.rows["owners"].append(row)
    found = find_jobs(store.ask, Chosen(), parse_prices(PRICE, "prices.yaml"))
    assert {job.row["job"]: (job.gpus, job.cost) for job in found} == {"1": (0, 1.0), "2": (None, None)}


def test_a_job_is_compared_with_the_others_of_its_user_and_name(store: SyntheticStore) -> None:
    node = store.node("cpu-1", "hpc")
    owners = [("alice", "train", hours) for hours in (1, 2, 3, 4, 5, 9)] + [("bob", "train", 20), ("alice", "eval", 20)]
    for owner_id, (user, title, hours) in enumerate(owners):
        row = {**node.at(3600 * hours), "owner_id": owner_id, "kind": "slurm", "job": str(owner_id), "title": title}
        end = {"started_at": EPOCH, "ended_at": row["time"], "user_name": user, "cpu_seconds": 60.0}
        store.rows["owners"].append({**row, **end, "observed_seconds": 3600.0 * hours})
    answer = answer_job(store.ask, name="5")
    longer, cpu = answer.record()["against"]
    figures = {"this": 9 * 3600, "median": 3 * 3600, "lowest": 3600, "highest": 5 * 3600}
    assert longer == {"figure": "seconds", "jobs": 5, "outside": "higher", **figures}
    assert (cpu["figure"], cpu["outside"]) == ("cpu_seconds", None)
    assert sorted(one["job"] for one in answer.record()["like"]) == ["0", "1", "2", "3", "4"]
    assert "duration is higher than in all 5" in answer.text
    assert "against" in answer_job(store.ask, name="6").record()


def test_a_gpu_of_unknown_use_is_not_called_unused(store: SyntheticStore) -> None:
    node = store.node("gpu-1", "hpc", gpus=["NVIDIA H200"])
    known = {"owner_id": 1, "kind": "slurm", "job": "4711", "started_at": EPOCH, "observed_seconds": 60.0}
    for gpu in ({}, {"device_id": node.gpus[0], "is_held": 1}):
        store.rows["owners"].append({**node.at(60), **known, **gpu})
    answer = answer_job(store.ask, name="4711")
    assert answer.facts["gpus_used"] is None
    assert answer.facts["changes"] == []


def test_a_job_with_a_pause_between_its_steps_runs_again(store: SyntheticStore) -> None:
    node = store.node("cpu-1", "hpc")
    for seconds, ended in ((60, True), (120, False), (180, False)):
        end = {"ended_at": EPOCH + timedelta(seconds=seconds)} if ended else {}
        job = {"owner_id": 1, "kind": "slurm", "job": "4711", "started_at": EPOCH, "observed_seconds": 60.0}
        store.rows["owners"].append({**node.at(seconds), **job, **end})
    (found,) = find_jobs(store.ask, Chosen(), None)
    assert (found.state, found.row["seconds"]) == ("running", 180.0)


def test_what_an_earlier_agent_counted_before_the_time_that_is_asked_for_counts(store: SyntheticStore) -> None:
    node = store.node("gpu-1", "hpc", gpus=["NVIDIA H200"])
    agents = (node, store.beside(node))
    for number, agent in enumerate(agents):
        known = {"owner_id": 1, "kind": "slurm", "job": "4711", "started_at": EPOCH, "is_held": 1}
        state = {**agent.at((2 + 2.5 * number) * DAY), **known, "observed_seconds": 2 * DAY}
        store.rows["owners"] += [state, {**state, "device_id": node.gpus[0], "gpu_seconds": DAY}]
    # Of others, one of which began before all, nothing is older than a job that is shown.
    old = {"owner_id": 2, "kind": "slurm", "job": "4710", "started_at": EPOCH - timedelta(days=9)}
    store.rows["owners"].append({**node.at(0), **old, "observed_seconds": 60.0})
    (job,) = find_jobs(store.ask, Chosen(since=timedelta(days=1)), None)
    assert (job.row["gpu_seconds"], job.row["held_gpu_seconds"]) == (2 * DAY, 4 * DAY)
