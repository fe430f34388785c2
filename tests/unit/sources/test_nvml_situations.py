"""Every NVML source on every situation that is recorded: none breaks, and none makes figures up."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gpuagent.errors import SourceError
from gpuagent.sources import SOURCES, SourceType
from gpuagent.sources.source import Reading, Source, SourceContext
from tests.support.nvml_replay import FOLDER, NvmlRecording
from tests.support.trees import instant

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


def read(source: Source, seconds: float) -> tuple[list[Reading], str | None]:
    """Return what was read, and what failed."""
    readings: list[Reading] = []
    try:
        readings.extend(source.read(instant(seconds)))
    except SourceError as error:
        return readings, str(error)
    return readings, None


def test_every_recording_is_told_of() -> None:
    told = (FOLDER / "README.md").read_text()
    assert [name for name in RECORDINGS if f"| `{name}` |" not in told] == []


@all_recordings
@all_sources
def test_what_is_read_fits_the_tables_and_holds_something(source_type: SourceType, name: str) -> None:
    with opened(source_type, NvmlRecording.load(name)) as source:
        for seconds in range(12):
            for reading in read(source, seconds)[0]:
                assert set(reading.values) - {"device_id", "time", "pid", "run_id"}
                assert json.loads(json.dumps(reading.values)) == reading.values


@pytest.mark.parametrize("name", ["h200_one_of_two_busy", "mig", "throttled"])
def test_a_new_gpu_has_figures_of_every_kind(name: str) -> None:
    told = set()
    for source_type in NVML_SOURCES:
        with opened(source_type, NvmlRecording.load(name)) as source:
            told |= {column for second in range(2) for row in read(source, second)[0] for column in row.values}
    assert told >= {"memory_used_bytes", "sm_active_percent", "power_watts", "energy_joules", "pid", "throttle_reasons"}


@all_sources
def test_of_a_gpu_that_lacks_nearly_everything_nothing_is_zero_that_was_not_told(source_type: SourceType) -> None:
    with opened(source_type, NvmlRecording.load("old_gpu")) as source:
        readings = [reading for seconds in range(3) for reading in read(source, seconds)[0]]
    told_as_zero = {"throttle_reasons"}
    zeros = {name for reading in readings for name, value in reading.values.items() if value == 0}
    assert zeros <= told_as_zero


def test_a_gpu_that_is_held_back_says_why_and_runs_slower() -> None:
    source_type = next(source for source in NVML_SOURCES if source.name == "nvml")
    with opened(source_type, NvmlRecording.load("throttled")) as source:
        rows = [reading.values for seconds in range(3) for reading in read(source, seconds)[0]]
    assert [row["throttle_reasons"] for row in rows] == [4, 4 | 32, 4 | 32 | 64]
    assert [row["sm_clock_mhz"] for row in rows] == [1755.0, 1410.0, 1245.0]


@all_sources
def test_a_lost_gpu_has_no_rows_until_it_is_found(source_type: SourceType) -> None:
    recording = NvmlRecording.load("mig")
    found, lost = recording.outcomes, NvmlRecording.load("lost").outcomes
    with opened(source_type, recording) as source:
        before = [reading for seconds in range(2) for reading in read(source, seconds)[0]]
        recording.outcomes = lost
        if not before:
            return  # it has nothing to say of this GPU in any case
        for seconds in (2, 3, 4, 5):
            readings, error = read(source, seconds)
            assert [reading for reading in readings if "samples" in reading.table] == []
            assert error
            assert "GPU is lost" in error
        recording.outcomes = found
        after = [reading for seconds in (70, 140, 141) for reading in read(source, seconds)[0]]
    columns = {name for reading in after for name in reading.values}
    assert columns >= {name for reading in before for name in reading.values}
