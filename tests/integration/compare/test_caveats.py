"""Which warnings a comparison raises, over stores of known content."""

from datetime import timedelta

from gpuagent_collector.compare.comparison import Request, compare
from tests.integration.compare.comparing import alternate, codes, said, texts
from tests.integration.compare.synthetic import EPOCH, Node, SyntheticStore


def test_different_hardware_gpu_counts_and_software_are_warned_of(store: SyntheticStore) -> None:
    alternate(
        store,
        first={"texts": {"torch_version": "2.11"}},
        second={"texts": {"torch_version": "2.13"}},
        first_node={"gpus": ["NVIDIA L4"], "driver_version": "550"},
        second_node={"gpus": ["NVIDIA L4", "NVIDIA L4"], "driver_version": "580"},
    )
    comparison = compare(store.ask, Request())
    said = " ".join(texts(comparison))
    assert "different numbers of GPUs: alder 1, birch 2" in said
    assert "GPU used" in said
    assert "GPU driver" in said
    assert "Torch version" in said


def test_one_node_a_side_is_warned_of(store: SyntheticStore) -> None:
    alternate(store)
    assert "one_node" in codes(compare(store.ask, Request()))


def test_runs_that_did_not_take_turns_are_warned_of(store: SyntheticStore) -> None:
    nodes = store.node("alder-node", "alder"), store.node("birch-node", "birch")
    for repeat in range(5):
        for turn, node in enumerate(nodes):
            store.run(f"run-{repeat}-{turn}", node, start_seconds=1000 * turn + 20 * repeat)
    store.write()
    assert "not_interleaved" in codes(compare(store.ask, Request()))


def test_throttled_idle_shared_and_short_runs_are_warned_of(store: SyntheticStore) -> None:
    alder, _ = alternate(store, write=False, first_node={"gpus": ["NVIDIA L4"]})
    begin = EPOCH + timedelta(seconds=4)
    at = {"session_id": alder.session_id, "node_id": alder.node_id}
    for tick in range(60):
        moment = {**at, "time": begin + timedelta(seconds=tick / 10)}
        store.gpu_sample(moment, alder.gpus[0], throttle_reasons=4, utilization_percent=0.0)
    seen = {**at, "time": begin, "device_id": alder.gpus[0]}
    store.rows["gpu_samples"].append({**seen, "process_count": 1})
    held = {"pid": 5, "memory_used_bytes": 19_900_000_000, "utilization_percent": 42.4}
    store.rows["gpu_process_samples"].append({**seen, **held})
    store.rows["results"].append(
        {**at, "time": begin, "run_id": "first-0", "rank": 0, "name": "measure_short", "value": 1.0}
    )
    store.write()
    comparison = compare(store.ask, Request())
    assert codes(comparison) >= {"throttled", "idle_gpu", "shared_gpu", "measure_short"}
    assert all(
        "1 of 5 alder" in text for code, text in said(comparison) if code in {"throttled", "idle_gpu", "shared_gpu"}
    )
    shared = dict(said(comparison))["shared_gpu"]
    assert shared.endswith("on its GPU in 1 of 5 alder, with up to 19.9 GB of its memory and 42.4 % of its time")


def test_gaps_and_neighbours_are_warned_of(store: SyntheticStore) -> None:
    alder, _ = alternate(store, write=False)
    at = {"session_id": alder.session_id, "node_id": alder.node_id, "time": EPOCH}
    gap = {"from_time": EPOCH + timedelta(seconds=5), "to_time": EPOCH + timedelta(seconds=8.5)}
    store.rows["gaps"].append({**at, **gap, "reason": "spool_full"})
    store.run("beside", alder, start_seconds=40, workload="something-else")
    store.write()
    comparison = compare(store.ask, Request(workload="mnist"))
    assert "samples are missing in 1 of 5 alder, for up to 3.50 s" in texts(comparison)
    assert "other runs were on the same node at the same time in 1 of 5 alder" in texts(comparison)


def test_gaps_of_several_sources_at_once_are_one_stretch_of_missing_time(store: SyntheticStore) -> None:
    alder, _ = alternate(store, write=False)
    at = {"session_id": alder.session_id, "node_id": alder.node_id, "time": EPOCH}
    for source, start, end in (("a", 2, 8), ("b", 2, 8), ("c", 3, 5), ("d", 7, 9), ("e", 11, 12)):
        span = {"from_time": EPOCH + timedelta(seconds=start), "to_time": EPOCH + timedelta(seconds=end)}
        store.rows["gaps"].append({**at, **span, "source": source, "reason": "source_failed"})
    store.write()
    assert "samples are missing in 1 of 5 alder, for up to 8 s" in texts(compare(store.ask, Request()))


def test_a_gap_without_bounds_is_warned_of_and_one_of_another_agent_on_the_node_is_not(store: SyntheticStore) -> None:
    alder, birch = alternate(store, write=False)
    time = EPOCH + timedelta(seconds=5)
    store.rows["gaps"] += [
        {"session_id": alder.session_id, "node_id": alder.node_id, "time": time, "reason": "rejected"},
        {"session_id": 987, "node_id": birch.node_id, "time": time + timedelta(seconds=20), "reason": "rejected"},
    ]
    store.write()
    assert "samples are missing in 1 of 5 alder" in texts(compare(store.ask, Request()))


def test_a_session_that_reports_its_devices_twice_has_no_more_gpus(store: SyntheticStore) -> None:
    alternate(store, write=False, first_node={"gpus": ["NVIDIA L4"]}, second_node={"gpus": ["NVIDIA L4"]})
    first = store.rows["session_devices"][0]
    store.rows["session_devices"].append({**first, "time": EPOCH + timedelta(seconds=1), "power_limit_watts": 250.0})
    store.write()
    assert "gpu_counts" not in codes(compare(store.ask, Request()))


def test_gpus_that_the_runs_did_not_use_are_warned_of(store: SyntheticStore) -> None:
    alternate(store, first={"gpus": []}, first_node={"gpus": ["NVIDIA L4"]})
    assert "the node has GPUs but none is known to be used in 5 of 5 alder" in texts(compare(store.ask, Request()))


def test_a_run_far_from_its_repeats_is_named(store: SyntheticStore) -> None:
    alder, _ = alternate(store, write=False)
    store.run("slow-one", alder, start_seconds=7000, repeat=6, throughput=300.0)
    store.write()
    assert any("repeat 6 (slow-one)" in text for text in texts(compare(store.ask, Request())))


def test_runs_without_a_measured_phase_count_as_a_whole_with_a_warning(store: SyntheticStore) -> None:
    alternate(store, first={"phases": False})
    assert any("whole run" in text and "5 of 5 alder" in text for text in texts(compare(store.ask, Request())))


def two_busy_h200(store: SyntheticStore) -> Node:
    """Add runs on H200s at 1980 of 1980 MHz; return the first node."""
    gpus = {"gpus": ["NVIDIA H200"]}
    alder, _ = alternate(store, write=False, first_node=gpus, second_node=gpus)
    for row in store.rows["session_devices"]:
        row |= {"sm_clock_max_mhz": 1980.0, "pcie_width": 16, "pcie_width_max": 16}
    for row in store.rows["gpu_samples"]:
        row["sm_clock_mhz"] = 1980.0
    return alder


def warnings_of_gpus(store: SyntheticStore) -> dict[str, str]:
    """Write what was added, and return the warnings but for that of one node a side."""
    store.write()
    return {code: text for code, text in said(compare(store.ask, Request())) if code != "one_node"}


def test_healthy_gpus_are_not_warned_of(store: SyntheticStore) -> None:
    two_busy_h200(store)
    assert warnings_of_gpus(store) == {}


def test_throttling_is_reported_with_its_causes_and_their_shares(store: SyntheticStore) -> None:
    alder = two_busy_h200(store)
    samples = [row for row in store.rows["gpu_samples"] if row["node_id"] == alder.node_id]
    for number, row in enumerate(samples):
        row["throttle_reasons"] = (4, 4, 8 | 64, 0)[number % 4]
    text = warnings_of_gpus(store)["throttled"]
    assert text.startswith("GPU clocks were throttled in 5 of 5 alder, for up to 7")
    assert "of the measured time (power cap up to " in text
    assert ", heat up to 2" in text
    assert "brake" not in text


def test_a_gpu_that_runs_slower_than_its_like_is_warned_of_and_that_its_clock_seems_to_be_set(
    store: SyntheticStore,
) -> None:
    alder = two_busy_h200(store)
    for row in store.rows["gpu_samples"]:
        if row["node_id"] == alder.node_id:
            row["sm_clock_mhz"] = 1410.0
    warnings = warnings_of_gpus(store)
    assert warnings.keys() == {"different_clocks", "set_clocks"}
    assert warnings["different_clocks"].endswith("as shares of its maximum: alder 71.2 %, birch 100 %")
    assert "in 5 of 5 alder" in warnings["set_clocks"]


def test_clocks_that_are_set_alike_on_all_sides_are_not_warned_of(store: SyntheticStore) -> None:
    two_busy_h200(store)
    for row in store.rows["gpu_samples"]:
        row["sm_clock_mhz"] = 1410.0
    assert warnings_of_gpus(store) == {}


def test_idle_clocks_are_no_defect(store: SyntheticStore) -> None:
    alder = two_busy_h200(store)
    for row in store.rows["gpu_samples"]:
        if row["node_id"] == alder.node_id:
            row |= {"sm_clock_mhz": 345.0, "utilization_percent": 20.0}
    assert warnings_of_gpus(store) == {}


def test_a_narrow_link_is_warned_of_with_its_lanes(store: SyntheticStore) -> None:
    alder = two_busy_h200(store)
    next(row for row in store.rows["session_devices"] if row["node_id"] == alder.node_id)["pcie_width"] = 8
    assert warnings_of_gpus(store) == {
        "narrow_link": "the PCIe link of a GPU is narrower than it could be in 5 of 5 alder: ×8 of ×16"
    }


def test_failing_memory_is_warned_of(store: SyntheticStore) -> None:
    alder = two_busy_h200(store)
    at = {"session_id": alder.session_id, "node_id": alder.node_id, "device_id": alder.gpus[0]}
    time = EPOCH + timedelta(seconds=4)
    store.rows["gpu_health_samples"].append({**at, "time": time, "memory_repair_pending": 1, "memory_repair_failed": 1})
    for number, row in enumerate(row for row in store.rows["gpu_samples"] if row["node_id"] == alder.node_id):
        row["ecc_errors_uncorrected"] = int(number > 20)
    assert warnings_of_gpus(store) == {
        "ecc_errors_uncorrected": "memory errors occurred that could not be corrected in 1 of 5 alder",
        "memory_repair_pending": "bad memory of a GPU is waiting to be replaced in 1 of 5 alder",
        "memory_repair_failed": "bad memory of a GPU could not be replaced in 1 of 5 alder",
    }


def test_only_xid_errors_of_a_runs_own_gpus_and_time_are_reported(
    store: SyntheticStore,
) -> None:
    alder = two_busy_h200(store)
    at = {"session_id": alder.session_id, "node_id": alder.node_id, "event": "xid"}
    off_the_bus = {"number": 79, "words": "GPU has fallen off the bus"}
    store.rows["gpu_events"] += [
        {**at, "device_id": alder.gpus[0], "time": EPOCH + timedelta(seconds=5), **off_the_bus},
        {**at, "device_id": alder.gpus[0], "time": EPOCH + timedelta(seconds=6), **off_the_bus},
        {**at, "device_id": alder.gpus[0], "time": EPOCH + timedelta(seconds=6), "number": 999, "words": None},
        {**at, "device_id": alder.gpus[0], "time": EPOCH + timedelta(seconds=2000), "number": 31},
        {**at, "device_id": 4711, "time": EPOCH + timedelta(seconds=5), "number": 48},
    ]
    assert warnings_of_gpus(store) == {
        "xid_errors": "the driver reported errors of a GPU in 1 of 5 alder: "
        "Xid 79 (GPU has fallen off the bus), Xid 999"
    }


def test_an_error_of_the_gpu_of_which_a_run_had_an_instance_is_warned_of(store: SyntheticStore) -> None:
    alder = two_busy_h200(store)
    next(row for row in store.rows["session_devices"] if row["node_id"] == alder.node_id)["parent_device_id"] = 4711
    happened = {"session_id": alder.session_id, "node_id": alder.node_id, "time": EPOCH + timedelta(seconds=5)}
    store.rows["gpu_events"].append({**happened, "device_id": 4711, "event": "xid", "number": 48, "words": "ECC"})
    assert warnings_of_gpus(store).keys() == {"xid_errors"}


def test_energy_that_was_measured_in_different_ways_is_warned_of(store: SyntheticStore) -> None:
    alder = two_busy_h200(store)
    for row in store.rows["gpu_samples"]:
        row["power_kind"] = "instant" if row["node_id"] == alder.node_id else "average_1s"
    assert warnings_of_gpus(store) == {
        "energy_methods": "energy was measured in different ways on the sides: "
        "alder: polled power; birch: polled power, averaged over 1 s"
    }
