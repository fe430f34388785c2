"""Every NVML source on every situation that is recorded: none breaks, and none makes figures up."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gpuagent.sources import SOURCES, SourceType
from gpuagent.sources.source import Source, SourceContext
from tests.support.nvml_replay import FOLDER, NvmlRecording
from tests.support.sources import read_all

NVML_SOURCES = [source for source in SOURCES if source.name.startswith("nvml")]
RECORDINGS = sorted(path.stem for path in FOLDER.glob("*.json"))
# Here no source can be opened.
UNREACHABLE = {"lost"}

all_sources = pytest.mark.parametrize("source_type", NVML_SOURCES, ids=lambda source: source.name)
all_recordings = pytest.mark.parametrize("name", [name for name in RECORDINGS if name not in UNREACHABLE])


@contextmanager
def opened(source_type: SourceType, recording: NvmlRecording) -> Iterator[Source]:
    source = source_type(SourceContext(open_nvml=recording.open))
    try:
        yield source
    finally:
        source.close()
    assert recording.open_sessions == 0


def test_every_recording_is_documented() -> None:
    documented = (FOLDER / "README.md").read_text()
    assert [name for name in RECORDINGS if f"| `{name}` |" not in documented] == []


@all_recordings
@all_sources
def test_readings_are_json_values_and_hold_figures(source_type: SourceType, name: str) -> None:
    with opened(source_type, NvmlRecording.load(name)) as source:
        for seconds in range(12):
            for reading in read_all(source, seconds)[0]:
                assert set(reading.values) - {"device_id", "time", "pid", "run_id"}
                assert json.loads(json.dumps(reading.values)) == reading.values


@pytest.mark.parametrize("name", ["h200_one_of_two_busy", "mig", "throttled"])
def test_a_new_gpu_has_figures_of_every_kind(name: str) -> None:
    found = set()
    for source_type in NVML_SOURCES:
        with opened(source_type, NvmlRecording.load(name)) as source:
            found |= {column for second in range(2) for row in read_all(source, second)[0] for column in row.values}
    assert found >= {
        "memory_used_bytes",
        "sm_active_percent",
        "power_watts",
        "energy_joules",
        "pid",
        "throttle_reasons",
    }


@all_sources
def test_missing_figures_of_an_old_gpu_are_never_zero(source_type: SourceType) -> None:
    with opened(source_type, NvmlRecording.load("old_gpu")) as source:
        readings = [reading for seconds in range(3) for reading in read_all(source, seconds)[0]]
    reported_as_zero = {"throttle_reasons"}
    zeros = {name for reading in readings for name, value in reading.values.items() if value == 0}
    assert zeros <= reported_as_zero


def test_a_throttled_gpu_has_reasons_and_lower_clocks() -> None:
    source_type = next(source for source in NVML_SOURCES if source.name == "nvml")
    with opened(source_type, NvmlRecording.load("throttled")) as source:
        rows = [reading.values for seconds in range(3) for reading in read_all(source, seconds)[0]]
    assert [row["throttle_reasons"] for row in rows] == [4, 4 | 32, 4 | 32 | 64]
    assert [row["sm_clock_mhz"] for row in rows] == [1755.0, 1410.0, 1245.0]


@all_sources
def test_a_lost_gpu_has_no_rows_until_it_is_found(source_type: SourceType) -> None:
    recording = NvmlRecording.load("mig")
    found, lost = recording.outcomes, NvmlRecording.load("lost").outcomes
    with opened(source_type, recording) as source:
        before = [reading for seconds in range(2) for reading in read_all(source, seconds)[0]]
        recording.outcomes = lost
        if not before:
            return  # it has no figures of this GPU in any case
        for seconds in (2, 3, 4, 5):
            readings, error = read_all(source, seconds)
            assert [reading for reading in readings if "samples" in reading.table] == []
            assert error
            assert "GPU is lost" in error
        recording.outcomes = found
        after = [reading for seconds in (70, 140, 141) for reading in read_all(source, seconds)[0]]
    columns = {name for reading in after for name in reading.values}
    assert columns >= {name for reading in before for name in reading.values}
