"""Runs are told of GPUs that are lost while they run."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from gpuagent.errors import SourceError
from gpuagent.sources.nvml import NvmlGpu
from gpuagent.sources.source import Reading, SourceContext
from gpuagent.sources.support.losses import Losses
from tests.support.nvml_replay import ANY, NOT_SUPPORTED, NvmlRecording
from tests.support.trees import instant

FIRST, SECOND = "GPU-1", "GPU-2"
WORDS = "GPU is lost"


class Active:
    """The runs that are active."""

    def __init__(self, *run_ids: str) -> None:
        self.run_ids = run_ids

    def processes(self) -> Sequence[tuple[str, int]]:
        return [(run_id, 1) for run_id in self.run_ids]


def told(losses: Losses, *lost: str) -> list[tuple[object, ...]]:
    """Return what runs are told when these GPUs are lost."""
    news = losses.news(dict.fromkeys(lost, WORDS))
    assert all(reading.table == "run_events" for reading in news)
    return [tuple(reading.values[name] for name in ("run_id", "event", "name")) for reading in news]


def test_each_run_is_told_once_of_each_gpu_and_once_when_it_is_back() -> None:
    losses = Losses(Active("a", "b"))
    assert told(losses) == []
    assert told(losses, FIRST) == [("a", "gpu_lost", FIRST), ("b", "gpu_lost", FIRST)]
    assert told(losses, FIRST) == []
    assert told(losses, FIRST, SECOND) == [("a", "gpu_lost", SECOND), ("b", "gpu_lost", SECOND)]
    assert told(losses, SECOND) == [("a", "gpu_found", FIRST), ("b", "gpu_found", FIRST)]
    assert told(losses, FIRST, SECOND) == [("a", "gpu_lost", FIRST), ("b", "gpu_lost", FIRST)]


def test_a_run_that_begins_while_a_gpu_is_lost_is_told_then_and_one_that_is_over_no_more() -> None:
    runs = Active("a")
    losses = Losses(runs)
    told(losses, FIRST)
    runs.run_ids = ("b",)
    assert told(losses, FIRST) == [("b", "gpu_lost", FIRST)]
    runs.run_ids = ()
    assert told(losses) == []


UNSUPPORTED_SINCE = "it supports nothing any more of what it answered"


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [(NvmlRecording.load("lost").outcomes, WORDS), ({ANY: [NOT_SUPPORTED]}, UNSUPPORTED_SINCE)],
    ids=["lost", "supports nothing"],
)
def test_a_gpu_that_goes_is_an_event_with_the_reason_and_no_row(outcomes: dict[str, Any], words: str) -> None:
    recording = NvmlRecording.load("idle")
    devices = {name: outcome for name, outcome in recording.outcomes.items() if name in ("open()", "devices()")}
    source = NvmlGpu(SourceContext(open_nvml=recording.open, runs=Active("a")))
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
    source.close()
