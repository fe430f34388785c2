"""Xid errors, from the driver's own structures to rows."""

from collections.abc import Iterator
from typing import Any

import pynvml
import pytest

from gpuagent.errors import SourceError
from gpuagent.sources.nvml_events import XID, NvmlEvents
from gpuagent.sources.source import SourceContext
from gpuagent.sources.support.nvml_api import Nvml, NvmlLostError, NvmlUnsupportedError, open_nvml
from gpuagent_common.keys import key
from tests.support.nvml_replay import NvmlRecording
from tests.support.trees import instant

UUID = "GPU-11111111-aaaa-4aaa-8aaa-111111111111"
CALL = f"events({UUID}, {XID})"


def source_of(*outcomes: dict[str, Any]) -> tuple[NvmlEvents, NvmlRecording]:
    replayed = NvmlRecording({"open()": [{"answer": None}], "devices()": [{"answer": [UUID]}], CALL: list(outcomes)})
    return NvmlEvents(SourceContext(open_nvml=replayed.open)), replayed


def test_each_error_is_a_row_of_its_own_in_words_where_they_are_known() -> None:
    source, replayed = source_of({"answer": []}, {"answer": [[8, 79], [8, 79], [8, 7777]]})
    assert list(source.read(instant(0))) == []
    readings = list(source.read(instant(1)))
    assert {reading.table for reading in readings} == {"gpu_events"}
    assert len({reading.key for reading in readings}) == 3
    assert [reading.values["words"] for reading in readings] == ["GPU has fallen off the bus"] * 2 + [None]
    assert readings[0].values == {
        "device_id": key(UUID),
        "event": "xid",
        "number": 79,
        "words": "GPU has fallen off the bus",
    }
    source.close()
    assert replayed.open_sessions == 0


def test_a_gpu_that_tells_no_events_is_asked_once() -> None:
    source, replayed = source_of({"error": 3, "words": "Not Supported"})
    assert [list(source.read(instant(second))) for second in range(3)] == [[], [], []]
    assert replayed.calls[CALL] == 1
    source.close()


def test_a_lost_gpu_is_a_failure_and_listened_to_again_when_it_is_back() -> None:
    source, _ = source_of({"error": 15, "words": "GPU is lost"}, {"answer": []}, {"answer": [[8, 62]]})
    with pytest.raises(SourceError, match="GPU is lost"):
        list(source.read(instant(0)))
    assert list(source.read(instant(2))) == []
    assert [reading.values["number"] for reading in source.read(instant(3))] == [62]
    source.close()


class EventQueue:
    """Stands in for the driver's side of pynvml's event functions."""

    def __init__(self) -> None:
        # Events, as kind and number, and error codes.
        self.waiting: list[int | tuple[int, int]] = []
        self.registered: list[tuple[object, int]] = []
        self.open_sets = 0
        self.refusal: int | None = None

    def create(self) -> object:
        self.open_sets += 1
        return "a set"

    def register(self, handle: object, kinds: int, _set: object) -> None:
        if self.refusal:
            raise pynvml.NVMLError(self.refusal)
        self.registered.append((handle, kinds))

    def wait(self, _set: object, timeout_millis: int) -> Any:
        assert timeout_millis == 0
        told = self.waiting.pop(0) if self.waiting else pynvml.NVML_ERROR_TIMEOUT
        if isinstance(told, int):
            raise pynvml.NVMLError(told)
        return pynvml.c_nvmlEventData_t(eventType=told[0], eventData=told[1])

    def free(self, _set: object) -> None:
        self.open_sets -= 1


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> EventQueue:
    queue = EventQueue()
    answers = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetHandleByUUID": lambda uuid: f"handle of {uuid}",
        "nvmlEventSetCreate": queue.create,
        "nvmlDeviceRegisterEvents": queue.register,
        "nvmlEventSetWait_v2": queue.wait,
        "nvmlEventSetFree": queue.free,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, answer)
    return queue


@pytest.fixture
def nvml(queue: EventQueue) -> Iterator[Nvml]:
    session = open_nvml()
    yield session
    session.close()
    assert queue.open_sets == 0


def test_the_driver_is_listened_to_from_the_first_call_on(nvml: Nvml, queue: EventQueue) -> None:
    assert nvml.events(UUID, XID) == []
    queue.waiting = [(8, 79), (8, 31)]
    assert nvml.events(UUID, XID) == [(8, 79), (8, 31)]
    assert nvml.events(UUID, XID) == []
    assert queue.registered == [(f"handle of {UUID}", pynvml.nvmlEventTypeXidCriticalError)]


def test_what_a_gpu_told_before_it_was_lost_is_not_lost(nvml: Nvml, queue: EventQueue) -> None:
    queue.waiting = [(8, 79), pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_GPU_IS_LOST]
    assert nvml.events(UUID, XID) == [(8, 79)]
    with pytest.raises(NvmlLostError):
        nvml.events(UUID, XID)
    assert nvml.events(UUID, XID) == []
    assert len(queue.registered) == 2


def test_a_gpu_that_never_stops_telling_does_not_hold_up_the_others(nvml: Nvml, queue: EventQueue) -> None:
    queue.waiting = [(8, 13)] * 1000
    assert 0 < len(nvml.events(UUID, XID)) < 1000


def test_a_gpu_without_events_says_so(nvml: Nvml, queue: EventQueue) -> None:
    queue.refusal = pynvml.NVML_ERROR_NOT_SUPPORTED
    with pytest.raises(NvmlUnsupportedError):
        nvml.events(UUID, XID)
    assert queue.open_sets == 0
