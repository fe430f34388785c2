"""Which warnings a comparison raises, over stores of known content."""

from datetime import timedelta
from typing import Any

import pytest

from gpuagent_collector.compare.document import find_next
from gpuagent_collector.metrics.summarize import summarize_runs
from tests.integration.compare.comparing import alternate, compared, texts, warnings
from tests.integration.compare.synthetic import COMPUTED_AT, EPOCH, Node, SyntheticStore

pytestmark = pytest.mark.slow


def test_different_hardware_gpu_counts_and_software_on_one_node_a_side_are_warned_of(store: SyntheticStore) -> None:
    alternate(
        store,
        first={"texts": {"torch_version": "2.11"}},
        second={"texts": {"torch_version": "2.13"}},
        first_node={"gpus": ["NVIDIA L4"], "driver_version": "550"},
        second_node={"gpus": ["NVIDIA L4", "NVIDIA L4"], "driver_version": "580"},
    )
    found = warnings(store)
    assert "one_node" in found
    said = " ".join(found.values())
    for text in ("different numbers of GPUs: 1 on alder, 2 on birch", "GPU used", "GPU driver", "Torch version"):
        assert text in said


def test_what_follows_from_a_compared_precision_is_no_other_difference(store: SyntheticStore) -> None:
    node = store.node("alder-node", "alder")
    for precision, reported in (("bf16", {"autocast": "bfloat16"}), ("tf32", {"tf32_matmul": "1"})):
        for _ in range(5):
            store.next_run(node, parameters={"precision": precision}, texts=reported)
    assert "different_specs" not in warnings(store, by="parameter:precision")
    assert "Autocast" in warnings(store, by="run")["different_specs"]


def test_limits_that_are_compared_are_no_other_difference_and_nothing_is_left_to_separate(
    store: SyntheticStore,
) -> None:
    limited = store.node("alder-node", "alder", cpu_limit_cores=1.0)
    for node, limits, threads in ((store.node("alder-node", "alder"), None, "2"), (limited, "cpus=1", "1")):
        for _ in range(4):
            store.next_run(node, limits=limits, texts={"threads": threads})
    found = compared(store, by="limits")
    assert "different_specs" not in {caveat.code for caveat in found.caveats}
    assert " --why " not in (find_next(found) or "")
    assert "CPU limit" in warnings(store, by="run")["different_specs"]


def test_ranks_that_are_compared_are_no_other_difference(store: SyntheticStore) -> None:
    node = store.node("alder-node", "alder", gpus=["NVIDIA L4", "NVIDIA L4"])
    for ranks in (1, 2):
        for _ in range(4):
            store.next_run(node, parameters={"ranks": ranks}, gpus=range(ranks), throughput=1000.0 * ranks)
    found = compared(store, by="parameter:ranks")
    assert "gpu_counts" not in {caveat.code for caveat in found.caveats}
    assert find_next(found) == "collector scaling mnist"


@pytest.mark.parametrize(
    ("power9", "x86", "expected"),
    [
        ({"architecture": "ppc64le"}, {"architecture": "x86_64"}, ["satori ppc64le", "openshift x86_64"]),
        ({"architecture": "x86_64"}, {"architecture": "x86_64"}, None),
        # Of a store from before, or of a report that says nothing of it.
        ({"architecture": None}, {"architecture": "x86_64"}, None),
    ],
)
def test_sides_of_different_architectures_are_named_among_the_first_warnings(
    store: SyntheticStore, power9: dict[str, Any], x86: dict[str, Any], expected: list[str] | None
) -> None:
    nodes = [store.node("node0012", "satori", **power9), store.node("worker-3", "openshift", **x86)]
    for _ in range(5):
        for node in nodes:
            store.next_run(node)
    found = compared(store).caveats
    of_architectures = [(rank, each) for rank, each in enumerate(found) if each.code == "different_architectures"]
    if expected is None:
        assert of_architectures == []
        return
    ((rank, caveat),) = of_architectures
    assert rank < 3
    assert all(side in caveat.text for side in expected)
    assert "PyTorch" in caveat.remedy


def test_workloads_may_count_other_items(store: SyntheticStore) -> None:
    nodes = [store.node(f"{name}-node", name) for name in ("alder", "birch")]
    for workload in ("mnist", "gcn"):
        for node in nodes * 5:
            store.next_run(node, workload=workload)
        if workload == "mnist":
            for row in store.rows["results"]:
                row["unit"] = "images/s" if row["name"] == "throughput" else row.get("unit")
    assert "mixed_units" not in warnings(store)


def test_runs_that_did_not_take_turns_are_warned_of(store: SyntheticStore) -> None:
    for turn, name in enumerate(("alder", "birch")):
        node = store.node(f"{name}-node", name)
        for repeat in range(5):
            store.run(f"run-{repeat}-{turn}", node, start_seconds=1000 * turn + 20 * repeat)
    assert "not_interleaved" in warnings(store)


@pytest.mark.parametrize(
    ("repeats", "expected"), [(1, None), (3, "6 runs of 2 nodes for alder, 6 runs of 2 nodes for birch")]
)
def test_several_runs_of_each_of_a_few_nodes_are_warned_of(
    store: SyntheticStore, repeats: int, expected: str | None
) -> None:
    nodes = [store.node(f"{name}-{number}", name) for number in range(2) for name in ("alder", "birch")]
    for _ in range(repeats):
        for node in nodes:
            store.next_run(node)
    found = warnings(store)
    assert "one_node" not in found
    assert (found["few_nodes"].split(":")[0] if expected else found.get("few_nodes")) == expected


@pytest.mark.parametrize("seconds", [3, 12])
def test_parts_of_a_gpu_that_were_sampled_for_a_short_phase_are_warned_of(store: SyntheticStore, seconds: int) -> None:
    alternate(store, first_node={"gpus": ["NVIDIA H200"]}, second_node={"gpus": ["NVIDIA H200"]})
    for row in store.rows["gpu_samples"]:
        row["dram_active_percent"] = 20.0
    for row in store.rows["run_events"]:
        row["time"] += timedelta(seconds=(12 - seconds) * (row["name"] == "measure"))
    assert ("measure_short" in warnings(store)) is (seconds < 10)


def test_throttled_idle_shared_and_short_runs_are_warned_of(store: SyntheticStore) -> None:
    alder, _ = alternate(store, first_node={"gpus": ["NVIDIA L4"]})
    for tick in range(60):
        store.gpu_sample(alder.at(4 + tick / 10), alder.gpus[0], throttle_reasons=4, utilization_percent=0.0)
    held = {"pid": 5, "memory_used_bytes": 19_900_000_000, "utilization_percent": 42.4}
    for seen in (alder.at(4, gpu=0), alder.at(8, gpu=0)):  # the first share is also of time before the phase
        store.rows["gpu_samples"].append({**seen, "process_count": 1})
        store.rows["gpu_process_samples"].append({**seen, **held})
    short = {"run_id": "first-0", "rank": 0, "name": "measure_short", "value": 1.0}
    store.rows["results"].append({**alder.at(4), **short})
    found = warnings(store)
    assert found.keys() >= {"throttled", "idle_gpu", "shared_gpu", "measure_short"}
    assert all("1 of 5 runs on alder" in found[code] for code in ("throttled", "idle_gpu", "shared_gpu"))
    assert found["shared_gpu"].endswith(
        "on its GPU in 1 of 5 runs on alder, with up to 19.9 GB of its memory and 42.4 % of its time"
    )


@pytest.mark.parametrize(
    ("gaps", "text"),
    [
        ([(5, 8.5)], "samples are missing in 1 of 5 runs on alder, for up to 3.50 s"),
        # Gaps of several sources at once are one stretch of missing time.
        ([(2, 8), (2, 8), (3, 5), (7, 9), (11, 12)], "samples are missing in 1 of 5 runs on alder, for up to 8 s"),
    ],
)
def test_gaps_and_neighbours_are_warned_of(store: SyntheticStore, gaps: list[tuple[float, float]], text: str) -> None:
    alder, _ = alternate(store)
    for source, (start, end) in enumerate(gaps):
        span = {"from_time": EPOCH + timedelta(seconds=start), "to_time": EPOCH + timedelta(seconds=end)}
        store.rows["gaps"].append({**alder.at(0), **span, "source": f"{source}", "reason": "source_failed"})
    store.run("beside", alder, start_seconds=40, workload="something-else")
    said = texts(compared(store, workload="mnist"))
    assert text in said
    assert "other runs were on the same node at the same time in 1 of 5 runs on alder" in said


def test_processes_that_were_left_metrics_that_were_dropped_gaps_and_impossible_readings_are_warned_of(
    store: SyntheticStore,
) -> None:
    alder, birch = alternate(store)
    # A gap without bounds, and one of another agent on the node.
    for gap in (alder.at(5), {**birch.at(25), "session_id": 987}):
        store.rows["gaps"].append({**gap, "reason": "rejected"})
    power = {"quantity": "gpu_samples.power_watts", "readings": 3, "value": 4294967.295, "source": "nvml"}
    span = {"from_time": EPOCH + timedelta(seconds=4)}
    store.rows["impossible_readings"] += [{**alder.at(5), **span, **power}, {**birch.at(10_000), **power}]
    left = {"run_id": "first-0", "event": "left", "name": "processes", "detail": '{"processes": 2, "names": ["sh"]}'}
    thinned = {"event": "thinned", "name": "metrics", "detail": '{"every": 4, "metrics": ["loss"]}'}
    store.rows["run_events"] += [
        {**alder.at(5), **left},
        *({**birch.at(5), "run_id": f"second-{repeat}", **thinned} for repeat in range(2)),
        # A program's own events of these names.
        {**birch.at(5), **left, "run_id": "second-0", "rank": 0},
        {**birch.at(5), **left, "run_id": "second-0", "detail": '{"processes": "all"}'},
        {**birch.at(5), **thinned, "run_id": "second-0", "detail": '{"every": "other"}'},
        {
            **alder.at(5),
            "run_id": "first-1",
            "event": "malformed",
            "name": "total",
            "detail": '{"message": "no number"}',
        },
    ]
    found = warnings(store)
    assert found["left_processes"].endswith("in 1 of 5 runs on alder")
    assert found["thinned"].endswith("one in 4 is stored in 2 of 5 runs on birch")
    assert found["refused"] == "no number, in 1 of 5 runs on alder"
    assert "samples are missing in 1 of 5 runs on alder" in found["gaps"]
    assert "birch" not in found["gaps"] + found["impossible_readings"]
    assert "1 of 5 runs on alder" in found["impossible_readings"]
    assert "3 readings of gpu_samples.power_watts (nvml)" in found["impossible_readings"]


def test_a_session_that_reports_its_devices_twice_has_no_more_gpus(store: SyntheticStore) -> None:
    alternate(store, first_node={"gpus": ["NVIDIA L4"]}, second_node={"gpus": ["NVIDIA L4"]})
    first = store.rows["session_devices"][0]
    store.rows["session_devices"].append({**first, "time": EPOCH + timedelta(seconds=1), "power_limit_watts": 250.0})
    assert "gpu_counts" not in warnings(store)


def test_gpus_that_the_runs_did_not_use_are_warned_of(store: SyntheticStore) -> None:
    alternate(store, first={"gpus": []}, first_node={"gpus": ["NVIDIA L4"]})
    assert "the node has GPUs but none is known to be used in all 5 runs on alder" in texts(compared(store))


def test_a_run_far_from_its_repeats_is_named(store: SyntheticStore) -> None:
    alder, _ = alternate(store)
    store.run("slow-one", alder, start_seconds=7000, repeat=6, throughput=300.0, cpu_percent=90.0)
    assert "repeat 6 (slow-one)" in texts(compared(store))
    of_processors = texts(compared(store, metric="cpu_percent"))
    assert "repeat 6 (slow-one)" in of_processors
    assert "cpu_percent" not in of_processors


def test_runs_without_a_measured_phase_count_as_a_whole_with_a_warning(store: SyntheticStore) -> None:
    alternate(store, first={"phases": False})
    assert "no measured phase was reported in all 5 runs on alder" in texts(compared(store))


@pytest.fixture
def alder(store: SyntheticStore) -> Node:
    """The first of two nodes whose runs were on H200s at 1980 of 1980 MHz."""
    gpus = {"gpus": ["NVIDIA H200"]}
    alder, _ = alternate(store, first_node=gpus, second_node=gpus)
    for row in store.rows["session_devices"]:
        row |= {"sm_clock_max_mhz": 1980.0, "pcie_width": 16, "pcie_width_max": 16}
    for row in store.rows["gpu_samples"]:
        row["sm_clock_mhz"] = 1980.0
    return alder


def rows_of(store: SyntheticStore, node: Node, table: str = "gpu_samples") -> list[dict[str, Any]]:
    return [row for row in store.rows[table] if row["node_id"] == node.node_id]


def warnings_of_gpus(store: SyntheticStore) -> dict[str, str]:
    """Return the warnings but for that of one node a side."""
    return {code: text for code, text in warnings(store).items() if code != "one_node"}


def test_healthy_gpus_and_clocks_that_are_set_alike_on_all_sides_are_not_warned_of(
    store: SyntheticStore, alder: Node
) -> None:
    assert warnings_of_gpus(store) == {}
    store.connection.execute("UPDATE gpu_samples SET sm_clock_mhz = 1410")
    summarize_runs(
        store.connection,
        [f"{side}-{n}" for side in ("first", "second") for n in range(5)],
        COMPUTED_AT + timedelta(seconds=1),
    )
    assert warnings_of_gpus(store) == {}


def test_throttling_is_reported_with_its_causes_and_their_shares(store: SyntheticStore, alder: Node) -> None:
    for number, row in enumerate(rows_of(store, alder)):
        row["throttle_reasons"] = (4, 4, 8 | 64, 0)[number % 4]
    text = warnings_of_gpus(store)["throttled"]
    assert text.startswith("GPU clocks were throttled in all 5 runs on alder, for up to 7")
    assert "of the measured time (power cap up to " in text
    assert ", heat up to 2" in text
    assert "brake" not in text


def test_a_gpu_that_runs_slower_than_its_like_is_warned_of_and_that_its_clock_seems_to_be_set(
    store: SyntheticStore, alder: Node
) -> None:
    for row in rows_of(store, alder):
        row["sm_clock_mhz"] = 1410.0
    found = warnings_of_gpus(store)
    assert found.keys() == {"different_clocks", "set_clocks"}
    assert found["different_clocks"].endswith("as shares of its maximum: alder 71.2 %, birch 100 %")
    assert "in all 5 runs on alder" in found["set_clocks"]


def test_idle_clocks_are_no_defect(store: SyntheticStore, alder: Node) -> None:
    for row in rows_of(store, alder):
        row |= {"sm_clock_mhz": 345.0, "utilization_percent": 20.0}
    assert warnings_of_gpus(store) == {}


def test_a_narrow_link_failing_memory_errors_of_the_driver_and_ways_to_measure_are_warned_of(
    store: SyntheticStore, alder: Node
) -> None:
    rows_of(store, alder, "session_devices")[0]["pcie_width"] = 8
    repair = {"memory_repair_pending": 1, "memory_repair_failed": 1}
    store.rows["gpu_health_samples"].append({**alder.at(4, gpu=0), **repair})
    for row in store.rows["gpu_samples"]:
        row["power_kind"] = "instant" if row["node_id"] == alder.node_id else "average_1s"
    for number, row in enumerate(rows_of(store, alder)):
        row["ecc_errors_uncorrected"] = int(number > 20)
    off_the_bus = {"number": 79, "words": "GPU has fallen off the bus"}
    events: list[dict[str, Any]] = [
        {**alder.at(5, gpu=0), **off_the_bus},
        {**alder.at(6, gpu=0), **off_the_bus},
        {**alder.at(6, gpu=0), "number": 999, "words": None},
        # Of another time, and of another GPU.
        {**alder.at(2000, gpu=0), "number": 31},
        {**alder.at(5), "device_id": 4711, "number": 48},
    ]
    store.rows["gpu_events"] += [{**event, "event": "xid"} for event in events]
    assert warnings_of_gpus(store) == {
        "narrow_link": "the PCIe link of a GPU is narrower than it could be in all 5 runs on alder: ×8 of ×16",
        "ecc_errors_uncorrected": "memory errors occurred that could not be corrected in 1 of 5 runs on alder",
        "memory_repair_pending": "bad memory of a GPU is waiting to be replaced in 1 of 5 runs on alder",
        "memory_repair_failed": "bad memory of a GPU could not be replaced in 1 of 5 runs on alder",
        "xid_errors": "the driver reported errors of a GPU in 1 of 5 runs on alder: "
        "Xid 79 (GPU has fallen off the bus), Xid 999",
        "energy_methods": "energy was measured in different ways on the sides: "
        "alder: polled power; birch: polled power, averaged over 1 s",
    }


def test_an_error_of_the_gpu_of_which_a_run_had_an_instance_is_warned_of(store: SyntheticStore, alder: Node) -> None:
    rows_of(store, alder, "session_devices")[0]["parent_device_id"] = 4711
    event = {"device_id": 4711, "event": "xid", "number": 48, "words": "ECC"}
    store.rows["gpu_events"].append({**alder.at(5), **event})
    assert warnings_of_gpus(store).keys() == {"xid_errors"}


def test_slow_first_steps_that_cost_throughput_are_a_warning_with_the_warm_up_to_give(store: SyntheticStore) -> None:
    alternate(store)
    for number, request in enumerate([*store.rows["run_requests"]]):
        at = {name: request[name] for name in ("session_id", "node_id", "run_id")}
        for step in range(100):
            # The first twenty take three times as long.
            seconds = 0.192 if step < 20 else 0.064
            time = request["time"] + timedelta(seconds=4 + step / 20)
            row = {**at, "rank": 0, "time": time, "phase": "measure", "step": 10 + step, "wall_seconds": seconds}
            store.rows["steps"].append({**row, "items": 64.0 + number})
    for row in store.rows["results"]:
        row["value"] = 700.0 if row["name"] == "throughput" else row.get("value")
    assert "slower, by more than 2 % of the throughput, in all 10 runs" in warnings(store)["warming_up"]
    assert "warming_up" not in warnings(store, metric="loss")


def test_machines_with_one_identity_are_warned_of_and_their_runs_are_no_neighbours(store: SyntheticStore) -> None:
    alder, _ = alternate(store, first_node={"boot_id": "boot-1"})
    clone = store.beside(alder, hostname="clone", boot_id="boot-2", started_at=EPOCH + timedelta(seconds=70))
    store.run("of-the-clone", clone, start_seconds=80, workload="something-else")
    # The boot before is the same machine, though its agent did not end in good order.
    store.beside(alder, boot_id="boot-0", started_at=EPOCH - timedelta(days=1))
    comparison = compared(store, workload="mnist")
    said = {caveat.code: caveat.text for caveat in comparison.caveats}
    assert "clone" in said["shared_identity"]
    # The clone's agent came after the first runs, and was not heard of after its own.
    assert "1 of 5 runs on alder" in said["shared_identity"]
    assert "overlapping" not in said


def test_one_machine_after_a_restart_in_mid_run_is_not_warned_of(store: SyntheticStore) -> None:
    alder, _ = alternate(store, first_node={"boot_id": "boot-1"})
    again = store.beside(alder, boot_id="boot-2", started_at=EPOCH + timedelta(seconds=175.8))
    store.rows["run_states"] = [
        {**row, "session_id": again.session_id} if row["run_id"] == "first-4" and row["status"] == "succeeded" else row
        for row in store.rows["run_states"]
    ]
    assert "shared_identity" not in warnings(store)
