"""The stores on which the commands that answer are tested: known ones, and ones with hostile names."""

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from tests.integration.compare.ranked import add_ranked, add_s2
from tests.integration.compare.served import add_servers
from tests.integration.compare.synthetic import EPOCH, Node, SyntheticStore, quiet_and_burning
from tests.integration.fleet.scenes import add_faulty_fleet, add_history, add_peers
from tests.integration.profile.traced import add_traced, kernel, operator, recorded
from tests.integration.recommend.scenes import gke
from tests.integration.roofline.made_up import GPU, add_ceilings, add_trial, fp32
from tests.support.commands import HOSTILE

Fill = Callable[[SyntheticStore], None]

OTHER_KERNEL = (
    "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(cudnn::ops::nchw2nhwc_params_t<float>)"
)
NAMED: dict[str, Any] = {"environment": HOSTILE, "image": HOSTILE, "interference": HOSTILE}


def _compared(store: SyntheticStore) -> None:
    quiet_and_burning(store, gpus=["NVIDIA L4"])


def _planned(store: SyntheticStore) -> None:
    """Add five quiet and five disturbed runs of MNIST, 2 % apart, and a single run of GCN."""
    quiet_and_burning(store)
    store.run("alone", store.node("fir", "desk"), start_seconds=9000, workload="gcn")


def _scaled(store: SyntheticStore) -> None:
    """Add S2's runs, and one of MNIST that has no counterpart."""
    add_s2(store)
    add_ranked(store, store.node("spruce", "laptop"), 2, 100)


def _profiled(store: SyntheticStore) -> None:
    """Add what an H200 was recorded to run, and the same with another convolution in a container."""
    bare = recorded()
    docker = [
        {**one, "name": OTHER_KERNEL, "gpu_seconds": 2e-4} if "implicit_convolve" in one["name"] else one
        for one in bare
    ]
    node = store.node("spruce", "lab", gpus=["NVIDIA H200"])
    for repeat in range(3):
        for environment, operations, version in (("bare", bare, "91002"), ("docker", docker, "90100")):
            run: dict[str, Any] = {"throughput": 1000.0 + repeat, "texts": {"cudnn_version": version}}
            add_traced(store, node, operations, environment=environment, **run)


def _below_roofs(store: SyntheticStore) -> None:
    """Add a point of each kind: bytes counted, sampled, bounded, unknown."""
    node = store.node("spruce", "lab", gpus=[GPU])
    add_ceilings(store, node)
    for repeat in range(3):
        flops = fp32(2e12 * (1 + repeat / 100))
        add_trial(store, node, flops, dram_active_percent=20.0, busy_percent=97.0, workload="resnet18")
    bounded = {"minimum_bytes_per_step": 1e9}
    add_trial(store, node, {**fp32(5e11), **bounded}, busy_percent=46.0, environment="docker")
    add_trial(store, node, {**fp32(4e11), **bounded}, busy_percent=40.0)
    mixed = {"model_flops_per_step": 4e13, "model_flops_fp32_per_step": 4e12, "model_flops_tf32_per_step": 3.6e13}
    executed = {"executed_flops_per_step": 3e13, "executed_tensor_flops_per_step": 2.7e13}
    add_trial(store, node, {**mixed, **executed, "dram_bytes_per_step": 5e11}, workload="gpt")
    add_trial(store, node, fp32(1e12), workload="gcn")


def add_recordings(store: SyntheticStore) -> None:
    """Add three runs of what an H200 was recorded to do, a failed run, and a run of two ranks."""
    node = store.node("spruce", "lab", gpus=["NVIDIA H200"] * 2)
    for repeat in range(3):
        add_traced(store, node, recorded(), repeat=repeat + 1, gpus=node.gpus[:1])
    ended = store.next_run(node, workload="gcn", status="failed")
    tail = "loading\nTraceback: out of memory\n"
    event = {"event": "output", "name": "stderr", "detail": json.dumps({"tail": tail})}
    store.rows["run_events"].append({**ended, **event})
    store.rows["nodes"].clear()
    add_ranked(store, node, 2, 184.0)


def add_jobs(store: SyntheticStore) -> None:
    """Add a job on two nodes, three like it, one that sleeps on its GPUs, a pod, and a unit without a GPU."""
    nodes = [store.node(name, "hpc", gpus=["NVIDIA H200"] * 2, cpu_threads=64) for name in ("gpu-1", "gpu-2")]
    train: dict[str, Any] = {
        "title": "train",
        "user_name": "alice",
        "account": "vision",
        "place": "gpu",
        "held_cores": 16.0,
    }
    for number in range(4):
        for node in nodes[: 2 if number == 0 else 1]:
            busy = [80.0 - 20 * number, 0.0]
            owner_id = add_job(store, node, f"{4711 + number}", 100 * number, 3600, busy=busy, **train)
            if number == 0:
                add_step(store, node, owner_id, "batch", 0, 3600)
                add_step(store, node, owner_id, "0", 60, 600)
                add_step(store, node, owner_id, "1", 700, 2800, gpus_used=1)
    sleeps: dict[str, Any] = {"title": "notebook", "user_name": "bob", "account": "speech", "held_cores": 4.0}
    add_job(store, nodes[1], "4720", 0, 7200, busy=[0.0], idle=6600.0, ended=False, **sleeps)
    add_job(store, nodes[1], "vision/serve-0", 50, 7000, busy=[30.0], kind="pod", user_name="alice", place="vision")
    add_job(store, nodes[0], "build.service", 60, 500, kind="unit", user_name="root")


def add_step(
    store: SyntheticStore, node: Node, owner_id: int, step: str, start: float, seconds: float, gpus_used: int = 0
) -> None:
    """Add what an agent reports of a step of a job."""
    began, ended = (EPOCH + timedelta(seconds=after) for after in (start, start + seconds))
    known = {"owner_id": owner_id, "step": step, "started_at": began}
    counted = {"cpu_seconds": 2 * seconds, "memory_max_bytes": 3 * 10**9, "gpus_used": gpus_used}
    store.rows["owner_steps"].append({**node.at(start), **known, "observed_seconds": 0.0})
    last = {**node.at(start + seconds), **known, **counted, "ended_at": ended, "observed_seconds": seconds}
    store.rows["owner_steps"].append(last)


def add_nightly(store: SyntheticStore) -> None:
    """Add 16 jobs of a night each on three nodes, the last seven slower, some of another user, and one that runs."""
    nodes = [store.node(name, "hpc", gpus=["NVIDIA H200"] * 2, cpu_threads=64) for name in ("gpu-1", "gpu-2", "gpu-3")]
    train: dict[str, Any] = {"title": "train", "held_cores": 16.0}
    for night in range(16):
        slower = 900 if night >= 9 else 0
        busy = [70.0 - night % 4 - slower / 60, 40.0]
        start, seconds, node = 86400 * night, 3600 + 20 * (7 * night % 5) + slower, nodes[night % 3]
        add_job(store, node, f"{4700 + night}", start, seconds, busy=busy, cores=6.0, user_name="alice", **train)
    for night in range(6):
        start, seconds, node = 86400 * night + 9000, 3000 + 20 * (7 * night % 5), nodes[night % 3]
        add_job(store, node, f"{4800 + night}", start, seconds, busy=[85.0, 50.0], user_name="bob", **train)
    add_job(store, nodes[0], "4999", 86400 * 16, 600, busy=[10.0], ended=False, user_name="alice", **train)


def add_job(
    store: SyntheticStore,
    node: Node,
    job: str,
    start: float,
    seconds: float,
    *,
    busy: Sequence[float] = (),
    idle: float = 0.0,
    ended: bool = True,
    kind: str = "slurm",
    cores: float = 2.0,
    **facts: Any,
) -> int:
    """Add what agents report of a job: `busy` has the share of each of its GPUs, `idle` is of each; return its key."""
    store.keys += 1
    owner = {"owner_id": store.keys, "kind": kind, "job": job, "number": job if kind == "slurm" else None, **facts}
    given = {"command": json.dumps(["python", "train.py"]), "started_at": EPOCH + timedelta(seconds=start)}
    for age in (0.0, seconds / 2, seconds):
        ends = {"ended_at": EPOCH + timedelta(seconds=start + seconds)} if ended and age == seconds else {}
        state = {**node.at(start + age), **owner, **given, **ends, "observed_seconds": age}
        store.rows["owners"].append({**state, "cpu_seconds": cores * age, "memory_max_bytes": 4 * 10**9})
        for gpu, percent in enumerate(busy):
            counted = {"gpu_seconds": percent / 100 * age, "energy_joules": 300.0 * age}
            counted |= {"gpu_memory_max_bytes": 60 * 10**9, "idle_seconds": idle if age else 0.0, "is_held": 1}
            store.rows["owners"].append({**state, "device_id": node.gpus[gpu], **counted})
    for step in range(61):
        age = seconds * step / 60
        sampled = {**node.at(start + age), "owner_id": store.keys}
        store.rows["owner_samples"].append({**sampled, "cpu_seconds": cores * age, "memory_used_bytes": 4 * 10**9})
        for gpu, percent in enumerate(busy):
            now = {"sm_percent": percent * (step > 10), "gpu_seconds": percent / 100 * age}
            now |= {"idle_seconds": idle, "idle_now_seconds": idle, "energy_joules": 300.0 * age}
            store.rows["owner_samples"].append({**sampled, "device_id": node.gpus[gpu], **now})
    return store.keys


FILLS: dict[str, Fill] = {
    "jobs": add_jobs,
    "job": add_jobs,
    "idle": add_jobs,
    "nightly": add_nightly,
    "compare": _compared,
    "plan": _planned,
    "scaling": _scaled,
    "profile": _profiled,
    "roofline": _below_roofs,
    "recommend": gke,
    "show": add_recordings,
    "serving": add_servers,
    "peers": add_peers,
    "outliers": add_faulty_fleet,
    "history": add_history,
}


def _hostile_comparison(store: SyntheticStore) -> None:
    for turn, platform in enumerate((f"a{HOSTILE}", f"b{HOSTILE}")):
        node = store.node(platform, platform, gpus=[HOSTILE], cpu_model=HOSTILE)
        hostile: dict[str, Any] = {"parameters": {HOSTILE: HOSTILE}, "texts": {HOSTILE: HOSTILE}}
        for repeat in range(5):
            at = (2 * repeat + turn) * 20
            run = {**hostile, "workload": HOSTILE, "environment": HOSTILE}
            store.run(f"{platform}-{repeat}", node, start_seconds=at, **run)
        store.run(f"{platform}-more", node, start_seconds=8000 + 20 * turn)
        store.run(f"{platform}-odd", node, start_seconds=9000 + turn, workload=f"{HOSTILE}{turn}", status=HOSTILE)


def _hostile_scaling(store: SyntheticStore) -> None:
    node = store.node(HOSTILE, HOSTILE, gpus=[HOSTILE, HOSTILE])
    run = {**NAMED, "parameters": {HOSTILE: HOSTILE}, "workload": HOSTILE}
    for ranks in (1, 2):
        add_ranked(store, node, ranks, 100, **run)
    add_ranked(store, node, 2, 100, status=HOSTILE, **run)
    add_ranked(store, node, 2, 100, workload=f"alone{HOSTILE}")


def _hostile_profile(store: SyntheticStore) -> None:
    node = store.node(HOSTILE, HOSTILE, gpus=[HOSTILE])
    for number in range(2):
        names = (HOSTILE, f"{number}{HOSTILE}", HOSTILE * 60)
        operations = [*(kernel(name, 1.0 + number) for name in names), operator(HOSTILE, 1.0)]
        run: dict[str, Any] = {"image": HOSTILE, "workload": HOSTILE, "texts": {HOSTILE: f"{number}"}}
        add_traced(store, node, operations, environment=f"{number}{HOSTILE}", **run)
    store.run("failed", node, start_seconds=9999, texts={"trace_failed": HOSTILE})


def _hostile_roofline(store: SyntheticStore) -> None:
    node = store.node(HOSTILE, HOSTILE, gpus=[HOSTILE])
    add_ceilings(store, node)
    for row in store.rows["results"]:
        row["value_text"] = HOSTILE if row["name"] == "device" else row.get("value_text")
    for workload in (HOSTILE, f"other{HOSTILE}"):
        flops = {**fp32(1e12), "minimum_bytes_per_step": 1e9}
        add_trial(store, node, flops, texts={"device": HOSTILE}, workload=workload, **NAMED)
    store.run("failed", node, start_seconds=9999, status=HOSTILE)


def _hostile_recommendation(store: SyntheticStore) -> None:
    for turn in range(8):
        node = store.node(HOSTILE, f"{turn % 2}{HOSTILE}", gpus=[HOSTILE])
        store.run(f"{turn}", node, start_seconds=turn * 20, workload=HOSTILE, parameters={HOSTILE: HOSTILE})


def _hostile_jobs(store: SyntheticStore) -> None:
    node = store.node(HOSTILE, HOSTILE, gpus=[HOSTILE])
    names: dict[str, Any] = {"title": HOSTILE, "user_name": HOSTILE, "account": HOSTILE, "place": HOSTILE}
    for number in range(2):
        add_job(store, node, f"{HOSTILE}"[number:], 100 * number, 3600, busy=[10.0], idle=1000.0, kind=HOSTILE, **names)
    for row in store.rows["owners"]:
        row["command"] = json.dumps([HOSTILE])


HOSTILE_FILLS: dict[str, Fill] = {
    "jobs": _hostile_jobs,
    "job": _hostile_jobs,
    "idle": _hostile_jobs,
    "compare": _hostile_comparison,
    "scaling": _hostile_scaling,
    "profile": _hostile_profile,
    "roofline": _hostile_roofline,
    "recommend": _hostile_recommendation,
}
