"""Xid errors, from the driver's structures to rows."""

from collections.abc import Iterator
from typing import Any

import pynvml
import pytest

from gpuagent.errors import SourceError
from gpuagent.sources.nvml_events import XID, NvmlEvents
from gpuagent.sources.source import SourceContext
from gpuagent.sources.support.nvml_api import Nvml, NvmlLostError, NvmlUnsupportedError
from gpuagent_common.keys import key
from tests.support.nvml_replay import FIRST, NvmlRecording
from tests.support.trees import instant

CALL = f"events({FIRST}, {XID})"


def source_of(*outcomes: dict[str, Any]) -> tuple[NvmlEvents, NvmlRecording]:
    replayed = NvmlRecording.of_one_gpu({CALL: list(outcomes)})
    return NvmlEvents(SourceContext(open_nvml=replayed.open)), replayed


def test_each_xid_is_a_row_with_its_name_if_known() -> None:
    source, replayed = source_of({"answer": []}, {"answer": [[8, 79], [8, 79], [8, 7777]]})
    assert list(source.read(instant(0))) == []
    readings = list(source.read(instant(1)))
    assert {reading.table for reading in readings} == {"gpu_events"}
    assert len({reading.key for reading in readings}) == 3
    assert [reading.values["words"] for reading in readings] == ["GPU has fallen off the bus"] * 2 + [None]
    assert readings[0].values == {
        "device_id": key(FIRST),
        "event": "xid",
        "number": 79,
        "words": "GPU has fallen off the bus",
    }
    source.close()
    assert replayed.open_sessions == 0


def test_a_lost_gpu_is_a_failure_until_it_is_back() -> None:
    source, _ = source_of({"error": 15, "words": "GPU is lost"}, {"answer": []}, {"answer": [[8, 62]]})
    with pytest.raises(SourceError, match="GPU is lost"):
        list(source.read(instant(0)))
    assert list(source.read(instant(2))) == []
    assert [reading.values["number"] for reading in source.read(instant(3))] == [62]
    source.close()


class EventQueue:
    """A fake of the driver's side of pynvml's event functions."""

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
        event = self.waiting.pop(0) if self.waiting else pynvml.NVML_ERROR_TIMEOUT
        if isinstance(event, int):
            raise pynvml.NVMLError(event)
        return pynvml.c_nvmlEventData_t(eventType=event[0], eventData=event[1])

    def free(self, _set: object) -> None:
        self.open_sets -= 1


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> EventQueue:
    queue = EventQueue()
    answers = {
        "nvmlEventSetCreate": queue.create,
        "nvmlDeviceRegisterEvents": queue.register,
        "nvmlEventSetWait_v2": queue.wait,
        "nvmlEventSetFree": queue.free,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, answer)
    return queue


@pytest.fixture
def nvml(nvml: Nvml, queue: EventQueue) -> Iterator[Nvml]:
    yield nvml
    nvml.close()
    assert queue.open_sets == 0


def test_events_count_from_the_first_call_on(nvml: Nvml, queue: EventQueue) -> None:
    assert nvml.events(FIRST, XID) == []
    queue.waiting = [(8, 79), (8, 31)]
    assert nvml.events(FIRST, XID) == [(8, 79), (8, 31)]
    assert nvml.events(FIRST, XID) == []
    assert queue.registered == [(f"handle of {FIRST}", pynvml.nvmlEventTypeXidCriticalError)]


def test_events_before_a_loss_are_kept(nvml: Nvml, queue: EventQueue) -> None:
    queue.waiting = [(8, 79), pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_GPU_IS_LOST]
    assert nvml.events(FIRST, XID) == [(8, 79)]
    with pytest.raises(NvmlLostError):
        nvml.events(FIRST, XID)
    assert nvml.events(FIRST, XID) == []
    assert len(queue.registered) == 2


def test_a_flood_of_events_is_read_in_parts(nvml: Nvml, queue: EventQueue) -> None:
    queue.waiting = [(8, 13)] * 1000
    assert 0 < len(nvml.events(FIRST, XID)) < 1000


def test_a_gpu_without_events_is_unsupported(nvml: Nvml, queue: EventQueue) -> None:
    queue.refusal = pynvml.NVML_ERROR_NOT_SUPPORTED
    with pytest.raises(NvmlUnsupportedError):
        nvml.events(FIRST, XID)
    assert queue.open_sets == 0
