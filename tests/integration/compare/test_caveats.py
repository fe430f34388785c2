"""Which warnings a comparison raises, over stores of known content."""

from datetime import timedelta

from gpuagent_collector.compare.comparison import Request, compare
from tests.integration.compare.comparing import alternate, codes, said, texts
from tests.integration.compare.synthetic import EPOCH, SyntheticStore


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
    store.rows["gpu_process_samples"].append({**at, "time": begin, "device_id": alder.gpus[0], "pid": 5})
    store.rows["results"].append(
        {**at, "time": begin, "run_id": "first-0", "rank": 0, "name": "measure_short", "value": 1.0}
    )
    store.write()
    comparison = compare(store.ask, Request())
    assert codes(comparison) >= {"throttled", "idle_gpu", "shared_gpu", "measure_short"}
    assert all(
        "1 of 5 alder" in text for code, text in said(comparison) if code in {"throttled", "idle_gpu", "shared_gpu"}
    )


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


def test_runs_without_a_measured_phase_are_said_to_be_of_the_whole_run(store: SyntheticStore) -> None:
    alternate(store, first={"phases": False})
    assert any("whole run" in text and "5 of 5 alder" in text for text in texts(compare(store.ask, Request())))
