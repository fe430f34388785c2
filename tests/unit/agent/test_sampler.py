import threading
from collections.abc import Callable, Iterable
from itertools import pairwise
from unittest.mock import Mock

import pytest

from gpuagent.clock import Instant, SystemClock
from gpuagent.errors import SourceError
from gpuagent.sampling.rows import RecordBuffer
from gpuagent.sampling.sampler import ROUNDS, Sampler, measure_costs
from gpuagent.sources.source import Computed, Lane, Reading
from tests.support.clocks import SteppedClock

SECOND = 1_000_000_000


class WaitingMovesClock(threading.Event):
    """A stop event whose waits move the clock and take no time, and that is set after some waits."""

    def __init__(self, clock: SteppedClock, waits: int) -> None:
        super().__init__()
        self._clock, self._waits = clock, waits

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.move(timeout or 0)
        self._waits -= 1
        return self._waits < 0


class FakeSource:
    lane = Lane.FAST

    def __init__(self, name: str, read: Callable[[Instant], Iterable[Reading]], max_rate_hz: float = 100.0) -> None:
        self.name = name
        self.max_rate_hz = max_rate_hz
        self._read = read
        self.closed = False

    def read(self, now: Instant) -> Iterable[Reading]:
        return self._read(now)

    def close(self) -> None:
        self.closed = True


def host(values: dict[str, float]) -> Callable[[Instant], list[Reading]]:
    return lambda _now: [Reading(table="host_samples", values=values)]


def sample(*sources: FakeSource, clock: SteppedClock, ticks: int, rate_hz: float = 10.0) -> RecordBuffer:
    buffer = RecordBuffer()
    Sampler(sources, rate_hz=rate_hz, clock=clock, buffer=buffer).run(WaitingMovesClock(clock, ticks))
    return buffer


def test_sources_of_one_table_and_key_fill_one_row_a_tick() -> None:
    buffer = sample(FakeSource("a", host({"x": 1})), FakeSource("b", host({"y": 2})), clock=SteppedClock(), ticks=2)
    samples, _ = buffer.drain()
    assert samples["host_samples"] == [
        {"time": 1_000 * SECOND, "x": 1, "y": 2},
        {"time": 1_000 * SECOND + SECOND // 10, "x": 1, "y": 2},
    ]


def test_rows_of_different_keys_stay_apart_and_events_of_runs_are_records() -> None:
    readings = [Reading(table="gpu_samples", key=device, values={"device_id": device}) for device in (1, 2)]
    event = Reading(table="run_events", key="a", values={"run_id": "r", "event": "gpu_lost"})
    source = FakeSource("nvml", lambda _now: [*readings, event])
    samples, records = sample(source, clock=SteppedClock(), ticks=1).drain()
    assert source.closed
    assert [row["device_id"] for row in samples["gpu_samples"]] == [1, 2]
    # Unlike samples, records survive a full spool.
    assert "run_events" not in samples
    assert records["run_events"] == [{"time": 1_000 * SECOND, "run_id": "r", "event": "gpu_lost"}]


def test_a_source_is_read_at_most_at_its_own_rate() -> None:
    clock, read = SteppedClock(), Mock(return_value=[])
    sample(FakeSource("slow", read, max_rate_hz=4), FakeSource("fast", host({"x": 1})), clock=clock, ticks=10)
    times = [call.args[0].unix_nano - 1_000 * SECOND for call in read.call_args_list]
    assert [time / SECOND for time in times] == [0.0, 0.3, 0.6, 0.9]


def test_ticks_keep_their_deadlines_and_late_ones_are_missed() -> None:
    clock = SteppedClock()
    times: list[int] = []

    def read(now: Instant) -> list[Reading]:
        times.append(now.monotonic_nano - 5 * SECOND)
        if len(times) == 2:
            clock.move(0.35)
        return []

    samples, _ = sample(FakeSource("stalls", read), clock=clock, ticks=4).drain()
    assert [time / SECOND for time in times] == [0.0, 0.1, 0.45, 0.5]
    (report,) = samples["source_samples"]
    assert (report["reads"], report["missed_ticks"], report["late_ticks"]) == (4, 2, 0)


def test_a_failing_source_leaves_a_gap_and_the_others_continue() -> None:
    found, lost = [Reading(table="host_samples", values={"y": 1})], SourceError("the GPU is lost")
    sources = FakeSource("a", Mock(side_effect=[found, lost, lost, found])), FakeSource("b", host({"x": 1}))
    samples, records = sample(*sources, clock=SteppedClock(), ticks=4).drain()
    assert [row.get("y") for row in samples["host_samples"]] == [1, None, None, 1]
    assert [row["x"] for row in samples["host_samples"]] == [1, 1, 1, 1]
    (gap,) = records["gaps"]
    start = 1_000 * SECOND
    assert (gap["source"], gap["from_time"], gap["to_time"]) == ("a", start + SECOND // 10, start + 3 * SECOND // 10)
    failures = {row["source"]: (row["failures"], row["error"]) for row in samples["source_samples"]}
    assert failures == {"a": (2, "the GPU is lost"), "b": (0, None)}


def test_readings_before_a_failure_count_and_a_bug_in_a_source_is_a_failed_reading() -> None:
    def read(_now: Instant) -> Iterable[Reading]:
        yield Reading(table="gpu_samples", key=1, values={"device_id": 1})
        raise ZeroDivisionError("oops")

    samples, _ = sample(FakeSource("nvml", read), clock=SteppedClock(), ticks=2).drain()
    assert [row["device_id"] for row in samples["gpu_samples"]] == [1, 1]
    assert samples["source_samples"][0]["error"] == "ZeroDivisionError: oops"


def test_a_reading_that_cannot_be_computed_costs_no_other_reading() -> None:
    readings = [
        Reading("host_samples", Computed(lambda: {"x": 1 // 0})),
        Reading("host_samples", Computed(lambda before, after: {"y": after - before}, 1, 3)),
    ]
    samples, _ = sample(FakeSource("a", lambda _now: readings), clock=SteppedClock(), ticks=1).drain()
    assert samples["host_samples"] == [{"time": 1_000 * SECOND, "y": 2}]


def test_a_source_that_never_recovers_is_a_gap_in_every_report_and_until_exit() -> None:
    clock = SteppedClock()
    start = clock.unix_nano
    source = FakeSource("a", Mock(side_effect=SourceError("lost")))
    _, records = sample(source, clock=clock, ticks=250).drain()
    names = ("source", "reason", "detail", "from_time", "to_time")
    ends = [start, start + 10 * SECOND, start + 20 * SECOND, start + 25 * SECOND]
    assert [tuple(row[name] for name in names) for row in records["gaps"]] == [
        ("a", "source_failed", "lost", begin, end) for begin, end in pairwise(ends)
    ]


def test_a_wall_clock_step_is_a_gap() -> None:
    clock = SteppedClock()

    def read(now: Instant) -> list[Reading]:
        if now.monotonic_nano == 5 * SECOND:
            clock.unix_nano += 60 * SECOND
        return []

    _, records = sample(FakeSource("a", read), clock=clock, ticks=2).drain()
    (gap,) = records["gaps"]
    assert (gap["reason"], gap["detail"]) == ("clock_step", "the wall clock moved by +60.000 s")


def test_a_source_has_a_cost_at_its_own_rate_even_when_it_fails() -> None:
    read = Mock(side_effect=SourceError("nothing"))
    source = FakeSource("failing", read, max_rate_hz=2.0)
    (cost,) = measure_costs([source], 10.0, SystemClock())
    # The opener closes it.
    assert not source.closed
    assert read.call_count == 1 + ROUNDS
    # Dated a period of the source apart, so that its rare work counts as often as in the agent.
    dated_nano = [call.args[0].monotonic_nano for call in read.call_args_list]
    assert {after - before for before, after in pairwise(dated_nano)} == {500_000_000}
    assert (cost.source, cost.rate_hz) == ("failing", 2.0)
    assert cost.cpu_percent == 200 * cost.cpu_seconds
    assert cost.cpu_seconds > 0
    assert cost.wall_seconds > 0


@pytest.mark.parametrize(
    ("table", "values", "column"),
    [
        ("gpu_samples", {"utilization_percent": float(2**32 - 1)}, "utilization_percent"),
        ("gpu_samples", {"power_watts": (2**32 - 1) / 1000, "power_kind": "instant"}, "power_watts"),
        ("gpu_samples", {"temperature_celsius": float(2**32 - 1)}, "temperature_celsius"),
        ("gpu_samples", {"sm_clock_mhz": float(2**32 - 1)}, "sm_clock_mhz"),
        ("gpu_samples", {"throttle_reasons": 2**64 - 1}, "throttle_reasons"),
        ("gpu_samples", {"ecc_errors_uncorrected": 2**32 - 1}, "ecc_errors_uncorrected"),
        ("gpu_samples", {"memory_used_bytes": 81, "memory_total_bytes": 80}, "memory_used_bytes"),
        ("gpu_samples", {"sm_active_percent": -1.0}, "sm_active_percent"),
        ("gpu_samples", {"dram_active_percent": 100 * 140737488355328.0}, "dram_active_percent"),
        ("gpu_samples", {"energy_joules": (2**64 - 1) / 1000}, "energy_joules"),
        ("power_samples", {"power_watts": (2**32 - 1) / 1000}, "power_watts"),
        ("host_samples", {"memory_available_bytes": 9, "memory_total_bytes": 8}, "memory_available_bytes"),
        ("host_samples", {"network_send_bytes_per_second": 2.0**64}, "network_send_bytes_per_second"),
        ("host_samples", {"cpu_power_watts": 65_532.0}, "cpu_power_watts"),
        ("cgroup_samples", {"cpu_cores": 1.8e13}, "cpu_cores"),
        ("process_samples", {"anonymous_bytes": -4096}, "anonymous_bytes"),
    ],
)
def test_an_impossible_reading_is_absent_and_counted(table: str, values: dict[str, float | str], column: str) -> None:
    clock = SteppedClock()
    start = clock.unix_nano
    source = FakeSource("broken", lambda _now: [Reading(table, values)])
    samples, records = sample(source, clock=clock, ticks=3).drain(is_last=True)
    assert [row[column] for row in samples[table]] == [None] * 3
    others = {name: value for name, value in values.items() if name != column}
    assert all(others.items() <= row.items() for row in samples[table])
    (count,) = records["impossible_readings"]
    assert (count["source"], count["quantity"], count["readings"]) == ("broken", f"{table}.{column}", 3)
    assert (count["from_time"], count["time"]) == (start, start + 2 * SECOND // 10)
    assert count["value"] == pytest.approx(values[column])


def test_counts_of_a_sensor_that_stays_broken_are_a_row_every_ten_seconds() -> None:
    clock, buffer = SteppedClock(), RecordBuffer()
    source = FakeSource("broken", host({"cpu_percent": 1e9}))
    counts: list[object] = []
    for _ in range(25):
        Sampler([source], rate_hz=1.0, clock=clock, buffer=buffer).run(WaitingMovesClock(clock, 1))
        clock.move(1)
        _, records = buffer.drain()
        counts += [row["readings"] for row in records.get("impossible_readings", [])]
    assert counts == [6, 6, 6, 6]
    assert buffer.drain(is_last=True)[1]["impossible_readings"][0]["readings"] == 1


def test_a_text_in_the_place_of_a_number_costs_no_other_reading() -> None:
    readings = [Reading("host_samples", {"cpu_percent": "high"}), Reading("host_samples", {"load_1m": 1.0})]
    samples, _ = sample(FakeSource("a", lambda _now: readings), clock=SteppedClock(), ticks=1).drain()
    assert [row["load_1m"] for row in samples["host_samples"]] == [1.0]
