"""Every command that a warning gives as its remedy works on the runs that it warns about."""

import ast
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from gpuagent.cli.bench import command as gpuagent_bench
from gpuagent.cli.run import command as gpuagent_run
from gpuagent_workloads.registry import WORKLOADS, find
from tests.integration.compare.comparing import alternate
from tests.integration.compare.filled import Fill, add_job
from tests.integration.compare.ranked import add_ranked
from tests.integration.compare.served import add_served
from tests.integration.compare.synthetic import BEFORE_MEASURE, EPOCH, RUN_SECONDS, Node, SyntheticStore
from tests.integration.compare.test_own_programs import NANOGPT, add_losses, own
from tests.integration.compare.test_serving import add_failure
from tests.integration.compare.test_sweeps import add_nodes_of_sites
from tests.integration.profile.traced import add_traced, operator
from tests.integration.roofline.made_up import GPU, add_ceilings, add_trial, fp32
from tests.support.commands import Collector

pytestmark = pytest.mark.slow

COLLECTOR = Path(__file__).parents[3] / "collector" / "gpuagent_collector"


def turns(first: Mapping[str, Any], second: Mapping[str, Any], **nodes: Any) -> Fill:
    """Return a fill of five runs on each of alder and birch."""

    def fill(store: SyntheticStore) -> None:
        alternate(store, first=dict(first), second=dict(second), **nodes)

    return fill


def warming(run: Mapping[str, Any], **seconds: list[float]) -> Fill:
    """Return a fill of such runs on alder and birch, with measured steps that take these seconds, by platform."""

    def fill(store: SyntheticStore) -> None:
        alternate(store, first=dict(run), second=dict(run))
        store.rows["steps"].clear()
        for row in store.rows["run_requests"]:
            at = {name: row[name] for name in ("session_id", "node_id", "run_id")}
            of_side = seconds["alder" if row["run_id"].startswith("first") else "birch"]
            for number, wall in enumerate(of_side):
                time = row["time"] + timedelta(seconds=BEFORE_MEASURE + number / 100)
                step = {"step": number, "phase": "measure", "wall_seconds": wall, "items": 1.0, "rank": 0}
                store.rows["steps"].append({**at, "time": time, **step})

    return fill


SLOW_START, FEW_STEPS = [0.3] * 10 + [0.1, 0.101, 0.099, 0.1002, 0.0998] * 14, [0.1] * 20
OBSERVED = own("python", "train.py", throughput=10.0, phases=True)
TRAINED = {"parameters": {"warmup": 20}, "throughput": 10.0}


def after_an_event(store: SyntheticStore) -> None:
    """Add runs of several nodes before and after a driver, with other arguments after it."""
    for name in ("fir", "elm", "oak"):
        node = store.node(name, "lab", driver_version="550")
        for _ in range(2):
            store.next_run(node, **own(*NANOGPT, "--seed=1", environment="bare"))
        store.rows["sessions"].append(
            {**store.rows["sessions"][-1], "session_id": node.session_id + 1000, "driver_version": "580"}
        )
        later = Node(session_id=node.session_id + 1000, node_id=node.node_id, gpus=())
        for _ in range(2):
            store.next_run(later, **own(*NANOGPT, "--seed=2", environment="docker"))


def of_two_nodes(store: SyntheticStore) -> None:
    nodes = [store.node(f"{name}-{number}", name) for number in range(2) for name in ("alder", "birch")]
    for _ in range(3):
        for node in nodes:
            store.next_run(node)


def in_pairs(store: SyntheticStore) -> None:
    node = store.node("alder-node", "alder")
    for repeat in range(1, 9):
        for environment in ("bare", "docker"):
            status = "failed" if (repeat, environment) == (8, "docker") else "succeeded"
            store.next_run(node, environment=environment, experiment="cost", repeat=repeat, status=status)


def ended(status: str) -> Fill:
    def fill(store: SyntheticStore) -> None:
        alder, _ = alternate(store)
        store.run("other", alder, start_seconds=5000, status=status)

    return fill


def one_failed(store: SyntheticStore) -> None:
    node = store.node("alder-node", "alder")
    for environment, status in (("bare", "succeeded"), ("docker", "succeeded"), ("podman", "failed")):
        store.next_run(node, environment=environment, status=status)


def mixed_units(store: SyntheticStore) -> None:
    alternate(store)
    for row in store.rows["results"]:
        if row["name"] == "throughput" and row["run_id"].startswith("first"):
            row["unit"] = "steps/s"


def lacking(store: SyntheticStore) -> None:
    """Add three sides, of which one has no throughput."""
    alternate(store, first=own("a", throughput=10.0), second=own("a", throughput=11.0))
    store.next_run(store.node("cedar-node", "cedar"), **own("a"))


def traced(store: SyntheticStore) -> None:
    alder, birch = store.node("alder-node", "alder"), store.node("birch-node", "birch")
    for milliseconds, node in enumerate([alder, birch] * 2, 1):
        add_traced(store, node, [operator("aten::mm", milliseconds)])


def joined(*experiments: str | None) -> Fill:
    def fill(store: SyntheticStore) -> None:
        nodes = [store.node("alder-node", "alder"), store.node("birch-node", "birch")]
        for number, experiment in enumerate(experiments):
            for turn, (repeat, node) in enumerate(product((1, 2), nodes)):
                start_seconds = 3600 * number + turn * (RUN_SECONDS + 1)
                run_id = f"run-{number}-{turn}"
                store.run(run_id, node, start_seconds=start_seconds, experiment=experiment, repeat=repeat)

    return fill


def doubtful(store: SyntheticStore) -> None:
    """Add gaps, a shared GPU, two ways to measure power, and runs that are excluded, cancelled and beside others."""
    alder, _ = alternate(store, first_node={"gpus": ["NVIDIA L4"]}, second_node={"gpus": ["NVIDIA L4"]})
    for row in store.rows["gpu_samples"]:
        row["power_kind"] = "instant" if row["node_id"] == alder.node_id else "average_1s"
    store.rows["gaps"].append({**alder.at(45), "reason": "source_failed"})
    seen = alder.at(44, gpu=0)
    store.rows["gpu_samples"].append({**seen, "process_count": 1})
    store.rows["gpu_process_samples"].append({**seen, "pid": 5, "memory_used_bytes": 9_000_000_000})
    store.rows["run_edits"].append({"run_id": "first-0", "time": EPOCH, "is_excluded": True})
    store.run("other", alder, start_seconds=5000, status="cancelled")
    store.run("beside", alder, start_seconds=45, workload="other")


def below_roofs(**run: Any) -> Fill:
    def fill(store: SyntheticStore) -> None:
        node = store.node("spruce", "lab", gpus=[GPU])
        add_ceilings(store, store.node("other", "lab", gpus=[GPU]))
        for flops in ({**fp32(5e13)}, {**fp32(1e12), "minimum_bytes_per_step": 1e9}, {"model_flops_per_step": 1e12}):
            add_trial(store, node, flops, environment=f"e{len(store.rows['run_requests'])}", **run)
        executed = {"executed_flops_per_step": 5e14, "dram_bytes_per_step": 1e9}
        add_trial(store, node, {**fp32(1e12), **executed}, environment="executed", **run)
        add_trial(store, node, {**fp32(9e12), "dram_bytes_per_step": 5e12}, environment="above", **run)

    return fill


def without_roofs(store: SyntheticStore) -> None:
    add_trial(store, store.node("spruce", "lab", gpus=[GPU]), fp32(1e12))


def scaled(store: SyntheticStore) -> None:
    node = store.node("spruce", "lab", gpus=["NVIDIA L4"] * 2)
    for ranks in (1, 2):
        add_ranked(store, node, ranks, 100.0 * ranks)
    for status in ("timed_out", "cancelled"):
        add_ranked(store, node, 2, 100, status=status)


def served(store: SyntheticStore) -> None:
    node = store.node("spruce", "lab")
    for rate in (1, 4):
        for server in "ab":
            add_served(store, node, server, rate, 0.1, 1)
    add_failure(store, node, "a", 4, 2)


def environments(first: str | None, second: str | None, **both: Any) -> Fill:
    return turns({"environment": first, "image": "one", **both}, {"environment": second, "image": "two", **both})


COMPARE = ("compare",)

ROOFS = (
    "roofs_of_another_device executed_above_roof model_above_roof above_measured_roof bytes_at_least no_bytes no_peak"
)


# Codes of warnings, the store, and the command that shows them.
def same_units(store: SyntheticStore) -> None:
    for number in range(2):
        add_job(store, store.node(f"node-{number}", "hpc"), "build.service", 5000 * number, 500, kind="unit")


def two_jobs(store: SyntheticStore) -> None:
    node = store.node("node", "hpc")
    for number in (4711, 4712):
        add_job(store, node, f"{number}", 5000 * (number - 4711), 500, title="train", user_name="alice")


CASES: list[tuple[str, Fill, tuple[str, ...]]] = [
    ("several_jobs", same_units, ("job", "build.service")),
    ("n_too_small", two_jobs, ("compare", "4711", "4712")),
    ("warming_up", warming(OBSERVED, alder=SLOW_START, birch=SLOW_START), COMPARE),
    ("warming_up", warming(OBSERVED, alder=SLOW_START, birch=FEW_STEPS), COMPARE),
    ("warming_up", warming(TRAINED, alder=SLOW_START, birch=FEW_STEPS), COMPARE),
    ("warming_up", warming(OBSERVED, alder=SLOW_START, birch=SLOW_START), ("recommend", "nanogpt")),
    ("whole_run", turns(own("a", throughput=10.0), own("a", throughput=10.0)), COMPARE),
    ("no_throughput", turns(own("a"), own("a")), COMPARE),
    ("energy_methods gaps cancelled excluded overlapping shared_gpu", doubtful, COMPARE),
    *(("unsuccessful", ended(status), COMPARE) for status in ("failed", "timed_out", "lost")),
    ("failed_sides", one_failed, ("compare", "--by", "environment")),
    ("few_nodes", of_two_nodes, COMPARE),
    ("few_nodes", of_two_nodes, ("compare", "birch", "alder", "--where", "run_id <> 'x'")),
    ("unlike_nodes", lambda store: add_nodes_of_sites(store, 0.7), ("plan",)),
    ("not_interleaved different_commands", after_an_event, ("compare", "--before", "driver")),
    ("different_commands", turns(own("a", "--x=1"), own("a", "--x=2")), COMPARE),
    ("different_commands", turns(own("a", "++x.y=1"), own("a", "++x.y=2")), COMPARE),
    ("different_commands", turns(own("a", "b"), own("a", "c")), COMPARE),
    ("losses_differ", lambda store: add_losses(store, 3.0, 6.0), ("compare", "--by", "command")),
    ("joined", joined("one", "two"), COMPARE),
    ("joined", joined("one", "one"), COMPARE),
    ("joined", joined(None, "two"), COMPARE),
    ("confounded", environments("docker", "podman"), COMPARE),
    ("confounded", environments(None, "podman"), COMPARE),
    ("confounded", turns({"limits": "cpus=2"}, {"limits": "none"}), COMPARE),
    ("unmatched", in_pairs, ("compare", "--by", "environment", "bare", "docker")),
    ("mixed_units", mixed_units, COMPARE),
    ("untested", lacking, COMPARE),
    ("different_specs", turns({}, {}, second_node={"kernel": "7"}), COMPARE),
    ("different_specs", turns({"limits": "cpus=2"}, {}, second_node={"kernel": "7"}), COMPARE),
    ("unused_gpu", turns({"gpus": []}, {}, first_node={"gpus": ["NVIDIA L4"]}), COMPARE),
    ("no_ceilings", without_roofs, ("roofline",)),
    (ROOFS, below_roofs(), ("roofline",)),
    (ROOFS, below_roofs(**own("a", throughput=1000.0, phases=True)), ("roofline",)),
    ("unsuccessful cancelled", scaled, ("scaling", "mnist")),
    ("unsuccessful", served, ("serving", "--by", "parameter:server")),
    ("one_run", traced, ("profile", "run-0", "run-1")),
]


@pytest.mark.parametrize(("codes", "fill", "command"), CASES)
def test_the_remedy_of_a_warning_works(
    codes: str, fill: Fill, command: tuple[str, ...], collector: Collector, filled: Callable[[Fill], Path]
) -> None:
    path = filled(fill)
    name, *arguments = command
    # 1: what was measured is impossible, and a warning says so.
    ended, out, err = collector(name, path, *arguments, "--format", "json", columns=80)
    assert ended in (0, 1), err
    answer = json.loads(out)
    warnings = [*answer["warnings"], *answer.get("errors", ())]
    found = [each for each in warnings if each["code"] in codes.split()]
    assert {each["code"] for each in found} == set(codes.split())
    for remedy in (each["remedy"] for each in found):
        for words in map(shlex.split, re.findall(r"`([^`]+)`", remedy)):
            _check(words, remedy, lambda name, *rest: collector(name, path, *rest, columns=80))
    # A program of the user's own has no options of workloads.
    _, out, _ = collector("query", path, "FROM runs WHERE workload <> 'ceilings'", "--format", "json", columns=80)
    if all(run["command"] not in (None, "[]", []) for run in json.loads(out)):
        assert not any(re.search("--(warmup|counters|precision)", each["remedy"]) for each in found)


def _check(words: list[str], remedy: str, run: Callable[..., tuple[int, str, str]]) -> None:
    """Run a command of the collector; check that another one, an option, a table or a result exists."""
    match words:
        case ["collector", name, *rest]:
            if "--store" in rest:  # which `run` gives
                at = rest.index("--store")
                del rest[at : at + 2]
            code, out, err = run(name, *rest)
            assert (code, bool(out)) == (0, True), err
        case ["gpuagent", "bench", *rest]:
            options = {option for parameter in gpuagent_bench.params for option in parameter.opts}
            of_ceilings = {f"--{field.name.replace('_', '-')}" for field in fields(find("ceilings").config)}
            assert {word for word in rest if word.startswith("--")} <= options | of_ceilings
        case ["gpuagent", "run", *rest]:
            options = {option for parameter in gpuagent_run.params for option in parameter.opts}
            workloads = {workload.name for workload in WORKLOADS}
            assert set(rest) <= options | workloads
        case [option, *_] if option.startswith("--"):
            of_workloads = {f"--{field.name.replace('_', '-')}" for field in fields(find("mnist").config)}
            assert option in of_workloads | {name for parameter in gpuagent_run.params for name in parameter.opts}
        case [table] if re.search(rf"(view|table) `{table}`|`{table}` has", remedy):
            assert run("query", f"FROM {table}")[0] == 0
        case _:
            assert words[0] not in ("collector", "gpuagent") or words == ["gpuagent", "info"]


def test_every_warning_with_a_command_is_tried() -> None:
    tried = {code for codes, *_ in CASES for code in codes.split()}
    assert {code for code, remedy in _remedies() if "collector " in remedy or ".command(" in remedy} <= tried


def _remedies() -> Iterator[tuple[str, str]]:
    """Yield the code of each warning in the source, with the text of the call."""
    for path in COLLECTOR.rglob("*.py"):
        source = path.read_text()
        for call in ast.walk(ast.parse(source)):
            given = {each.arg: each.value for each in call.keywords} if isinstance(call, ast.Call) else {}
            code = given.get("code")
            if isinstance(code, ast.Constant) and "remedy" in given:
                yield str(code.value), ast.get_source_segment(source, call) or ""
