import time
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpuagent.errors import SourceError
from gpuagent.sources.nvml_power import NvmlPower, epoch_shift_nano
from gpuagent.sources.source import SourceContext
from tests.support.nvml_replay import FIRST, NvmlRecording
from tests.support.trees import instant

HELD = f"nvmlDeviceGetSamples({FIRST}, 0, 0)"


def source_of(*held: dict[str, Any]) -> tuple[NvmlPower, NvmlRecording]:
    recorded = NvmlRecording.of_one_gpu({HELD: list(held)})
    return NvmlPower(SourceContext(open_nvml=recorded.open)), recorded


def test_each_reading_of_the_driver_is_a_row_at_its_own_time() -> None:
    now = instant(0)
    micros = now.unix_nano // 1000
    early, late, later = micros - 40_000, micros - 20_000, micros
    source, _ = source_of({"answer": [[early, 70_000], [late, 71_500]]}, {"answer": [[late, 71_500], [later, 80_000]]})
    first, second = list(source.read(now)), list(source.read(now))
    assert [(row.values["time"], row.values["power_watts"]) for row in first + second] == [
        (early * 1000, 70.0),
        (late * 1000, 71.5),
        (later * 1000, 80.0),
    ]
    assert len({row.key for row in first}) == 2


def test_nothing_new_is_neither_a_row_nor_a_failure_but_a_failed_answer_is_one() -> None:
    source, _ = source_of({"error": 6, "words": "Not Found"}, {"error": 999, "words": "Unknown Error"})
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
    source, _ = source_of(*looks)
    watts = [row.values["power_watts"] for _ in looks for row in source.read(now)]
    assert watts == [milliwatts / 1000 for _, milliwatts in taken]


@pytest.mark.parametrize("seconds_since", [0, 5])
def test_time_stamps_since_the_boot_become_unix_time(seconds_since: int) -> None:
    now = instant(0)
    since_boot_nano = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - seconds_since * 10**9
    told_nano = since_boot_nano + epoch_shift_nano(since_boot_nano // 1000, now)
    # Between the two looks at the clock hardly any time passes; a second is plenty.
    assert told_nano == pytest.approx(now.unix_nano - seconds_since * 10**9, abs=10**9)
