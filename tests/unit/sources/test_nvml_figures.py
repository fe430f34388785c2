"""Counters, power samples, wear and events of GPUs, as NVML reports them."""

import time
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpuagent.errors import SourceError
from gpuagent.sources.nvml import XID, NvmlEvents, NvmlHealth, NvmlPower, epoch_shift_nano
from gpuagent.sources.nvml_gpm import METRICS, NvmlGpm
from gpuagent.sources.support.nvml_calls import MIN_SPAN_NANO, SampleRing
from gpuagent_common.keys import key
from tests.support.nvml_replay import ANY, FIRST, NOT_SUPPORTED, NvmlRecording
from tests.support.sources import replay
from tests.support.trees import instant

ASKED = f"gpm({FIRST}, {', '.join(map(str, METRICS))})"
HELD = f"nvmlDeviceGetSamples({FIRST}, 0, 0)"
XIDS = f"events({FIRST}, {XID})"


def take(ring: SampleRing[list[int]], now_nano: int) -> tuple[list[int], list[int]] | None:
    """Take a sample that holds its own time."""

    def fill(sample: list[int]) -> None:
        sample[:] = [now_nano]

    return ring.take(fill, now_nano)


@given(st.lists(st.integers(min_value=0, max_value=400_000_000), min_size=1, max_size=60))
def test_pairs_of_samples_are_far_enough_apart_and_end_now(gaps_nano: list[int]) -> None:
    ring = SampleRing[list[int]](list)
    for now_nano in accumulate(gaps_nano):
        pair = take(ring, now_nano)
        if pair is not None:
            (older_nano,), (newer_nano,) = pair
            assert newer_nano == now_nano
            assert newer_nano - older_nano >= MIN_SPAN_NANO


@given(st.lists(st.integers(min_value=34_000_000, max_value=400_000_000), min_size=4, max_size=60))
def test_polls_a_third_of_the_span_apart_always_find_a_pair(gaps_nano: list[int]) -> None:
    ring = SampleRing[list[int]](list)
    for count, now_nano in enumerate(accumulate(gaps_nano)):
        assert take(ring, now_nano) is not None or count < 3


def test_a_failed_sample_is_not_compared() -> None:
    ring = SampleRing[list[int]](list)
    take(ring, 0)
    for now_nano in (1, 2):
        with pytest.raises(ZeroDivisionError):
            ring.take(lambda _sample: 1 / 0, now_nano * MIN_SPAN_NANO)
    assert take(ring, 3 * MIN_SPAN_NANO) == ([0], [3 * MIN_SPAN_NANO])


def test_links_are_in_bytes_and_missing_metrics_are_asked_once() -> None:
    figures = {"2": 95.5, "10": 16.7, "20": 3.0}
    again = f"gpm({FIRST}, 2, 10, 20)"
    answers: list[dict[str, Any]] = [{"answer": None}, {"answer": figures}]
    source, recording = replay(NvmlGpm, {ASKED: answers, again: [{"answer": {"2": 1.0}}]})
    assert list(source.read(instant(0))) == []
    (reading,) = source.read(instant(1))
    assert reading.values == {
        "device_id": key(FIRST),
        "sm_active_percent": 95.5,
        "dram_active_percent": 16.7,
        "pcie_send_bytes_per_second": 3 * 2**20,
    }
    list(source.read(instant(2)))
    assert recording.calls[again] == 1


def test_a_failed_metric_is_absent_and_asked_again() -> None:
    first, again = {"2": None, "10": 1.0}, {"2": 95.5, "10": 2.0}
    source, _ = replay(NvmlGpm, {ASKED: [{"answer": first}], f"gpm({FIRST}, 2, 10)": [{"answer": again}]})
    found = [reading.values for second in range(2) for reading in source.read(instant(second))]
    assert [values.get("sm_active_percent") for values in found] == [None, 95.5]
    assert [values["dram_active_percent"] for values in found] == [1.0, 2.0]


def test_each_reading_of_the_driver_is_a_row_at_its_own_time() -> None:
    now = instant(0)
    micros = now.unix_nano // 1000
    early, late, later = micros - 40_000, micros - 20_000, micros
    answers = [{"answer": [[early, 70_000], [late, 71_500]]}, {"answer": [[late, 71_500], [later, 80_000]]}]
    source, _ = replay(NvmlPower, {HELD: answers})
    first, second = list(source.read(now)), list(source.read(now))
    assert [(row.values["time"], row.values["power_watts"]) for row in first + second] == [
        (early * 1000, 70.0),
        (late * 1000, 71.5),
        (later * 1000, 80.0),
    ]
    assert len({row.key for row in first}) == 2


@pytest.mark.parametrize("moved_micros", [-140, -1, 1, 140])
def test_a_reading_whose_time_stamp_the_driver_moves_is_one_row(moved_micros: int) -> None:
    now = instant(0)
    micros = now.unix_nano // 1000
    first = [[micros - 20_000 * back, 70_000] for back in (3, 2, 1)]
    again = [[stamp + moved_micros, milliwatts] for stamp, milliwatts in first]
    source, _ = replay(NvmlPower, {HELD: [{"answer": first}, {"answer": [*again, [micros, 70_000]]}]})
    assert [len(list(source.read(now))) for _ in range(2)] == [3, 1]


def test_nothing_new_is_neither_a_row_nor_a_failure_but_a_failed_answer_is_one() -> None:
    answers = [{"error": 6, "words": "Not Found"}, {"error": 999, "words": "Unknown Error"}]
    source, _ = replay(NvmlPower, {HELD: answers})
    assert list(source.read(instant(0))) == []
    with pytest.raises(SourceError, match="Unknown Error"):
        list(source.read(instant(1)))


@given(
    steps_micros=st.lists(st.integers(min_value=-(10**10), max_value=10**10), min_size=1, max_size=6),
    kept=st.integers(min_value=1, max_value=119),
)
def test_a_clock_step_neither_loses_nor_repeats_a_reading(steps_micros: list[int], kept: int) -> None:
    now = instant(0)
    micros = now.unix_nano // 1000
    taken: list[list[int]] = []
    looks: list[dict[str, Any]] = []
    for step_micros in steps_micros:
        micros += step_micros
        for _ in range(kept // 2 + 1):
            micros += 20_000
            taken.append([micros, 70_000 + len(taken)])
        looks.append({"answer": taken[-kept - 1 :]})
    assume(len({stamp for stamp, _ in taken}) == len(taken))
    source, _ = replay(NvmlPower, {HELD: looks})
    watts = [row.values["power_watts"] for _ in looks for row in source.read(now)]
    assert watts == [milliwatts / 1000 for _, milliwatts in taken]


@pytest.mark.parametrize("seconds_since", [0, 5])
def test_time_stamps_since_the_boot_become_unix_time(seconds_since: int) -> None:
    now = instant(0)
    since_boot_nano = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - seconds_since * 10**9
    told_nano = since_boot_nano + epoch_shift_nano(since_boot_nano // 1000, now)
    # Between the two looks at the clock hardly any time passes; a second is plenty.
    assert told_nano == pytest.approx(now.unix_nano - seconds_since * 10**9, abs=10**9)


def health(**answers: Any) -> tuple[NvmlHealth, NvmlRecording]:
    """Open the source on a GPU that answers the functions nvmlDeviceGet… with these names."""
    outcomes = {f"nvmlDeviceGet{name}({FIRST})": [{"answer": answer}] for name, answer in answers.items()}
    return replay(NvmlHealth, {ANY: [NOT_SUPPORTED], **outcomes})


def test_a_gpu_that_remaps_rows_has_counts_and_pending_repairs() -> None:
    source, recording = health(RemappedRows=[3, 1, 1, 0], CurrPcieLinkGeneration=5, CurrPcieLinkWidth=16)
    (reading,) = source.read(instant(0))
    assert (reading.table, reading.key) == ("gpu_health_samples", key(FIRST))
    assert reading.values == {
        "device_id": key(FIRST),
        "remapped_rows_correctable": 3,
        "remapped_rows_uncorrectable": 1,
        "memory_repair_pending": 1,
        "memory_repair_failed": 0,
        "pcie_generation": 5,
        "pcie_width": 16,
    }
    source.close()
    assert recording.open_sessions == 0


def test_a_gpu_before_ampere_has_retired_pages() -> None:
    source, recording = health(RetiredPagesPendingStatus=0, CurrPcieLinkWidth=8)
    for cause, pages in ((0, [4096, 8192]), (1, [65536])):
        recording.outcomes[f"nvmlDeviceGetRetiredPages({FIRST}, {cause})"] = [{"answer": pages}]
    (first,), (second,) = list(source.read(instant(0))), list(source.read(instant(10)))
    expected = {"device_id": key(FIRST), "retired_pages": 3, "memory_repair_pending": 0, "pcie_width": 8}
    assert first.values == second.values == expected
    assert recording.calls[f"nvmlDeviceGetRemappedRows({FIRST})"] == 1


def test_a_gpu_without_answers_has_no_row() -> None:
    assert list(health()[0].read(instant(0))) == []


def test_each_xid_is_a_row_with_its_name_if_known() -> None:
    fallen = "GPU has fallen off the bus"
    source, recording = replay(NvmlEvents, {XIDS: [{"answer": []}, {"answer": [[8, 79], [8, 79], [8, 7777]]}]})
    assert list(source.read(instant(0))) == []
    readings = list(source.read(instant(1)))
    assert {reading.table for reading in readings} == {"gpu_events"}
    assert len({reading.key for reading in readings}) == 3
    assert [reading.values["words"] for reading in readings] == [fallen, fallen, None]
    assert readings[0].values == {"device_id": key(FIRST), "event": "xid", "number": 79, "words": fallen}
    source.close()
    assert recording.open_sessions == 0


def test_a_lost_gpu_has_no_xids_until_it_is_back() -> None:
    lost = {"error": 15, "words": "GPU is lost"}
    source, _ = replay(NvmlEvents, {XIDS: [lost, {"answer": []}, {"answer": [[8, 62]]}]})
    with pytest.raises(SourceError, match="GPU is lost"):
        list(source.read(instant(0)))
    assert list(source.read(instant(2))) == []
    assert [reading.values["number"] for reading in source.read(instant(3))] == [62]


def test_a_slot_of_the_power_buffer_that_was_never_filled_is_no_reading() -> None:
    now = instant(0)
    micros = now.unix_nano // 1000
    source, _ = replay(NvmlPower, {HELD: [{"answer": [[0, 0], [micros, 70_000]]}]})
    assert [row.values["time"] for row in source.read(now)] == [micros * 1000]
