"""Events of runs about GPUs that are lost meanwhile."""

import json
from typing import Any

import pytest

from gpuagent.errors import SourceError
from gpuagent.sources.nvml import Losses, NvmlGpu
from gpuagent.sources.source import Reading
from tests.support.nvml_replay import ANY, NOT_SUPPORTED, NvmlRecording
from tests.support.runs import Runs
from tests.support.sources import OpenSource
from tests.support.trees import instant

FIRST, SECOND = "GPU-1", "GPU-2"
WORDS = "GPU is lost"


def report(losses: Losses, *lost: str) -> list[tuple[object, ...]]:
    """Return the events of runs when these GPUs are lost."""
    events = losses.report(dict.fromkeys(lost, WORDS))
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


UNSUPPORTED_SINCE = "it no longer supports any question that it answered before"


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [(NvmlRecording.load("lost").outcomes, WORDS), ({ANY: [NOT_SUPPORTED]}, UNSUPPORTED_SINCE)],
    ids=["lost", "supports nothing"],
)
def test_a_lost_gpu_is_an_event_with_the_reason(outcomes: dict[str, Any], words: str, open_source: OpenSource) -> None:
    recording = NvmlRecording.load("idle")
    devices = {name: outcome for name, outcome in recording.outcomes.items() if name in ("open()", "devices()")}
    source = open_source(NvmlGpu, open_nvml=recording.open, runs=Runs(("a", 1)))
    (before,) = source.read(instant(0))
    recording.outcomes = {**devices, **outcomes}
    readings: list[Reading] = []
    try:
        readings.extend(source.read(instant(1)))
    except SourceError as error:
        assert words in str(error)
    (event,) = readings
    assert (event.values["event"], event.values["detail"]) == ("gpu_lost", json.dumps({"reason": words}))
    recording.outcomes = NvmlRecording.load("idle").outcomes
    after, event = source.read(instant(3))
    assert event.values["event"] == "gpu_found"
    assert after.values == before.values
