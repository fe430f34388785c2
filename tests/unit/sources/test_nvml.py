import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuagent.errors import SourceUnavailableError
from gpuagent.facts import Surroundings, collect_device_facts
from gpuagent.sources import SOURCES, SourceType
from gpuagent.sources.nvml import XID, Losses, NvmlEnergy, NvmlEvents, NvmlGpu, NvmlPower
from gpuagent.sources.nvml_gpm import METRICS, NvmlGpm
from gpuagent.sources.source import Reading, Source, SourceContext
from gpuagent_common.keys import key
from tests.support.nvml_replay import ANY, FIRST, FOLDER, NO_DRIVER, NOT_SUPPORTED, SECOND, NvmlRecording
from tests.support.sources import Runs, read_all, replay
from tests.support.trees import instant, plant

LOST = "GPU is lost"
UNKNOWN_ERROR = {"error": 999, "words": "Unknown Error"}


def test_an_idle_gpu_has_every_cheap_figure() -> None:
    source, recording = replay(NvmlGpu, "idle")
    (reading,) = source.read(instant(0))
    assert (reading.table, reading.key) == ("gpu_samples", key(FIRST))
    assert reading.values == {
        "device_id": key(FIRST),
        "utilization_percent": 0.0,
        "memory_utilization_percent": 0.0,
        "memory_used_bytes": 0,
        "memory_reserved_bytes": 676_000_000,
        "memory_total_bytes": 150_754_820_096,
        "power_watts": 76.0,
        "power_kind": "instant",
        "temperature_celsius": 31.0,
        "sm_clock_mhz": 345.0,
        "memory_clock_mhz": 3201.0,
        "throttle_reasons": 1,
        "ecc_errors_uncorrected": 0,
    }
    source.close()
    assert recording.open_sessions == 0


def test_memory_clock_and_ecc_errors_are_asked_once_a_second_and_the_rest_each_time() -> None:
    source, _ = replay(NvmlGpu, "busy")
    rows = [reading.values for tick in range(21) for reading in source.read(instant(tick / 10))]
    each_second = {"memory_clock_mhz", "ecc_errors_uncorrected"}
    assert [tick for tick, row in enumerate(rows) if each_second <= row.keys()] == [0, 10, 20]
    assert {frozenset(row.keys() - each_second) for row in rows} == {frozenset(rows[0].keys() - each_second)}
    assert rows[0]["power_watts"]


def test_the_fast_lane_never_asks_for_energy_nor_processes() -> None:
    source, recording = replay(NvmlGpu, "busy")
    list(source.read(instant(0)))
    assert not [call for call in recording.calls if "Energy" in call or "Processes" in call or "Pcie" in call]


def test_figures_that_an_old_gpu_lacks_are_absent_and_asked_once() -> None:
    source, recording = replay(NvmlGpu, "old_gpu")
    (first,), (second,) = list(source.read(instant(0))), list(source.read(instant(1)))
    assert first == second
    assert not {"utilization_percent", "memory_reserved_bytes", "ecc_errors_uncorrected"} & set(first.values)
    assert first.values["memory_used_bytes"] == 676_000_000
    assert (first.values["power_watts"], first.values["power_kind"]) == (76.0, "instant")
    assert first.values["throttle_reasons"] == 0
    assert recording.calls[f"nvmlDeviceGetUtilizationRates({FIRST})"] == 1
    assert recording.calls[f"nvmlDeviceGetFieldValues({FIRST}, 186)"] == 1
    assert recording.calls[f"nvmlDeviceGetPowerUsage({FIRST})"] == 2


@pytest.mark.parametrize(
    ("capability", "kind"), [([7, 0], "instant"), ([8, 0], "instant"), ([8, 6], "average_1s"), ([9, 0], "average_1s")]
)
def test_power_usage_depends_on_the_architecture(capability: list[int], kind: str) -> None:
    source, recording = replay(NvmlGpu, "old_gpu")
    recording.outcomes[f"nvmlDeviceGetCudaComputeCapability({FIRST})"] = [{"answer": capability}]
    (reading,) = source.read(instant(0))
    assert reading.values["power_kind"] == kind


def test_one_figure_that_fails_for_a_moment_leaves_the_others_and_comes_back() -> None:
    source, recording = replay(NvmlGpu, "idle")
    recording.outcomes[f"nvmlDeviceGetTemperature({FIRST}, 0)"] = [UNKNOWN_ERROR, {"answer": 40}]
    (first,), (second,) = list(source.read(instant(0))), list(source.read(instant(1)))
    assert "temperature_celsius" not in first.values
    assert first.values["power_watts"] == 76.0
    assert second.values["temperature_celsius"] == 40.0


def test_two_gpus_have_rows_of_their_own_and_energy_in_joules() -> None:
    source, _ = replay(NvmlGpu, "two_gpus")
    power = {reading.key: reading.values["power_watts"] for reading in source.read(instant(0))}
    assert power == {key(FIRST): 76.0, key(SECOND): 654.321}
    counter, _ = replay(NvmlEnergy, "two_gpus")
    energy = {reading.key: reading.values for reading in counter.read(instant(0))}
    assert energy[key(FIRST)] == {"device_id": key(FIRST), "energy_joules": 900_000.0}


def test_a_lost_gpu_is_an_error_and_retried_until_it_is_back() -> None:
    source, recording = replay(NvmlGpu, "lost_and_found")
    assert read_all(source, 0)[0][0].values["utilization_percent"] == 50.0
    lost = f"cannot read {FIRST}: GPU is lost"
    assert read_all(source, 1) == ([], lost)
    assert recording.open_sessions == 0
    # Not before a second has passed, and then the driver fails: twice as long until the next time.
    assert read_all(source, 1.5) == ([], lost)
    assert recording.calls["open()"] == 1
    failed = f"cannot read {FIRST}: Unknown Error"
    assert read_all(source, 2) == ([], failed)
    assert read_all(source, 3.9) == ([], failed)
    assert recording.calls["open()"] == 2
    readings, error = read_all(source, 4)
    assert error is None
    assert readings[0].values["utilization_percent"] == 60.0
    source.close()
    assert recording.open_sessions == 0


def test_an_unknown_error_of_every_question_is_a_lost_gpu() -> None:
    source, recording = replay(NvmlGpu, "idle")
    recording.outcomes = {call: [UNKNOWN_ERROR] for call in recording.outcomes}
    assert read_all(source, 0) == ([], f"cannot read {FIRST}: Unknown Error")
    assert recording.open_sessions == 0
    source.close()


def test_a_lost_gpu_does_not_silence_the_other() -> None:
    source, recording = replay(NvmlGpu, "one_of_two_lost")
    assert [reading.key for reading in read_all(source, 0)[0]] == [key(FIRST), key(SECOND)]
    for seconds in (1, 2, 3, 4):
        readings, error = read_all(source, seconds)
        assert [reading.key for reading in readings] == [key(SECOND)]
        assert error == f"cannot read {FIRST}: GPU is lost"
    assert recording.open_sessions == 1
    source.close()


def test_retries_become_rare_but_never_end() -> None:
    source, recording = replay(NvmlGpu, "idle")
    recording.outcomes["open()"] = [{"error": 9, "words": "Driver Not Loaded"}]
    recording.outcomes[f"nvmlDeviceGetUtilizationRates({FIRST})"] = [{"error": 15, "words": "GPU is lost"}]
    for second in range(3600):
        assert read_all(source, second)[1]
    assert 60 <= recording.calls["open()"] <= 70


@pytest.mark.parametrize(
    ("source_type", "call"),
    [
        (NvmlEnergy, f"nvmlDeviceGetTotalEnergyConsumption({FIRST})"),
        (NvmlEvents, f"events({FIRST}, {XID})"),
        (NvmlGpm, f"gpm({FIRST}, {', '.join(map(str, METRICS))})"),
        (NvmlPower, f"nvmlDeviceGetSamples({FIRST}, 0, 0)"),
    ],
)
def test_an_unsupported_question_is_asked_once(source_type: Callable[[SourceContext], Source], call: str) -> None:
    source, recording = replay(source_type, {call: [NOT_SUPPORTED]})
    assert [read_all(source, seconds) for seconds in range(3)] == [([], None)] * 3
    assert recording.calls[call] == 1


def test_a_node_without_driver_comes_with_a_remedy() -> None:
    with pytest.raises(SourceUnavailableError, match="NVML Shared Library") as raised:
        NvmlGpu(SourceContext(open_nvml=NO_DRIVER))
    assert raised.value.remedy
    assert "--gpus all" in raised.value.remedy


def test_a_driver_without_gpus_is_unavailable_and_closed() -> None:
    recording = NvmlRecording({"open()": [{"answer": None}], "devices()": [{"answer": []}]})
    with pytest.raises(SourceUnavailableError, match="finds no GPU"):
        replay(NvmlGpu, recording)
    assert recording.open_sessions == 0


def report(losses: Losses, *lost: str) -> list[tuple[object, ...]]:
    """Return the events of runs when these GPUs are lost."""
    events = losses.report(dict.fromkeys(lost, LOST))
    assert all(reading.table == "run_events" for reading in events)
    return [tuple(reading.values[name] for name in ("run_id", "event", "name")) for reading in events]


def test_each_run_gets_one_event_per_loss_and_per_recovery() -> None:
    losses = Losses(Runs(("a", 1), ("b", 1)))
    assert report(losses) == []
    assert report(losses, FIRST) == [("a", "gpu_lost", FIRST), ("b", "gpu_lost", FIRST)]
    assert report(losses, FIRST) == []
    assert report(losses, FIRST, SECOND) == [("a", "gpu_lost", SECOND), ("b", "gpu_lost", SECOND)]
    assert report(losses, SECOND) == [("a", "gpu_found", FIRST), ("b", "gpu_found", FIRST)]
    assert report(losses, FIRST, SECOND) == [("a", "gpu_lost", FIRST), ("b", "gpu_lost", FIRST)]


def test_a_run_that_begins_during_a_loss_gets_its_event() -> None:
    runs = Runs(("a", 1))
    losses = Losses(runs)
    report(losses, FIRST)
    runs.supervisors = [("b", 1)]
    assert report(losses, FIRST) == [("b", "gpu_lost", FIRST)]
    runs.supervisors = ()
    assert report(losses) == []


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        (NvmlRecording.load("lost").outcomes, LOST),
        ({ANY: [NOT_SUPPORTED]}, "it no longer supports any question that it answered before"),
    ],
    ids=["lost", "supports nothing"],
)
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_lost_gpu_is_an_event_with_the_reason(machine: str, outcomes: dict[str, Any], words: str) -> None:
    source, recording = replay(NvmlGpu, "idle", runs=Runs(("a", 1)), machine=machine)
    devices = {name: outcome for name, outcome in recording.outcomes.items() if name in ("open()", "devices()")}
    (before,) = source.read(instant(0))
    recording.outcomes = {**devices, **outcomes}
    (event,), error = read_all(source, 1)
    assert error is None or words in error
    assert (event.values["event"], event.values["detail"]) == ("gpu_lost", json.dumps({"reason": words}))
    recording.outcomes = NvmlRecording.load("idle").outcomes
    after, event = source.read(instant(3))
    assert event.values["event"] == "gpu_found"
    assert after.values == before.values


NVML_SOURCES = [source for source in SOURCES if source.name.startswith("nvml")]
RECORDINGS = sorted(path.stem for path in FOLDER.glob("*.json"))
all_sources = pytest.mark.parametrize("source_type", NVML_SOURCES, ids=lambda source: source.name)


def read_replayed(source_type: SourceType, name: str, seconds: int) -> list[Reading]:
    """Return what a source reads of a recording, one reading a second."""
    source, recording = replay(source_type, name)
    readings = [reading for second in range(seconds) for reading in read_all(source, second)[0]]
    source.close()
    assert recording.open_sessions == 0
    return readings


def test_every_recording_is_documented() -> None:
    documented = (FOLDER / "README.md").read_text()
    assert [name for name in RECORDINGS if f"| `{name}` |" not in documented] == []


# In the recording `lost` no source can be opened.
@pytest.mark.parametrize("name", [name for name in RECORDINGS if name != "lost"])
@all_sources
def test_readings_are_json_values_and_hold_figures(source_type: SourceType, name: str) -> None:
    for reading in read_replayed(source_type, name, seconds=12):
        assert set(reading.values) - {"device_id", "time", "pid", "run_id"}
        values = dict(reading.values)
        assert json.loads(json.dumps(values)) == values


@pytest.mark.parametrize("name", ["h200_one_of_two_busy", "mig", "throttled"])
def test_a_new_gpu_has_figures_of_every_kind(name: str) -> None:
    every = [reading for source_type in NVML_SOURCES for reading in read_replayed(source_type, name, seconds=2)]
    figures = {"memory_used_bytes", "sm_active_percent", "power_watts", "energy_joules", "pid", "throttle_reasons"}
    assert {column for reading in every for column in reading.values} >= figures


@all_sources
def test_missing_figures_of_an_old_gpu_are_never_zero(source_type: SourceType) -> None:
    readings = read_replayed(source_type, "old_gpu", seconds=3)
    zeros = {name for reading in readings for name, value in reading.values.items() if value == 0}
    assert zeros <= {"throttle_reasons"}


def test_a_throttled_gpu_has_reasons_and_lower_clocks() -> None:
    rows = [reading.values for reading in read_replayed(NvmlGpu, "throttled", seconds=3)]
    assert [row["throttle_reasons"] for row in rows] == [4, 4 | 32, 4 | 32 | 64]
    assert [row["sm_clock_mhz"] for row in rows] == [1755.0, 1410.0, 1245.0]


@all_sources
def test_a_lost_gpu_has_no_rows_until_it_is_found(source_type: SourceType) -> None:
    source, recording = replay(source_type, "mig")
    found = recording.outcomes
    before = {name for seconds in range(2) for reading in read_all(source, seconds)[0] for name in reading.values}
    recording.outcomes = NvmlRecording.load("lost").outcomes
    # A source without figures of this GPU loses none.
    for seconds in (2, 3, 4, 5) if before else ():
        readings, error = read_all(source, seconds)
        assert [reading for reading in readings if "samples" in reading.table] == []
        assert LOST in (error or "")
    recording.outcomes = found
    after = {name for seconds in (70, 140, 141) for reading in read_all(source, seconds)[0] for name in reading.values}
    assert after >= before
    source.close()
    assert recording.open_sessions == 0


# DGX Spark, as its owners report it of driver 580; other answers are of no interest here.
GB10: dict[str, list[dict[str, Any]]] = {
    f"nvmlDeviceGetName({FIRST})": [{"answer": "NVIDIA GB10"}],
    f"nvmlDeviceGetTemperature({FIRST}, 0)": [{"answer": 35}],
    ANY: [NOT_SUPPORTED],
}
MEMINFO = "MemTotal: 127600748 kB\nMemAvailable: 118566368 kB\n"


@pytest.mark.parametrize(
    ("machine", "answer", "total", "used"),
    [
        ("aarch64", NOT_SUPPORTED, 127_600_748 * 1024, 9_034_380 * 1024),
        ("x86_64", NOT_SUPPORTED, None, None),
        ("aarch64", {"error": 4, "words": "No Permission"}, None, None),
        ("aarch64", {"answer": {"total": 10, "free": 4, "used": 6}}, 10, 6),
    ],
)
def test_a_gpu_that_shares_the_node_s_memory_has_the_node_s_figures(
    tmp_path: Path, machine: str, answer: dict[str, Any], total: int | None, used: int | None
) -> None:
    plant(tmp_path, {"meminfo": MEMINFO})
    outcomes = {**GB10, f"nvmlDeviceGetMemoryInfo({FIRST})": [answer]}
    source, recording = replay(NvmlGpu, outcomes, proc=tmp_path, sys=tmp_path, machine=machine)
    for second in range(3):
        (reading,) = source.read(instant(second))
        values = reading.values
        assert (values.get("memory_total_bytes"), values.get("memory_used_bytes")) == (total, used)
        assert values["temperature_celsius"] == 35
    source.close()
    given = Surroundings(root=tmp_path, proc=tmp_path, sys=tmp_path, machine=machine, open_nvml=recording.open)
    (device,) = collect_device_facts(given)
    assert device.memory_total_bytes == total
