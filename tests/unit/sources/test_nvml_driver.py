"""The access to NVML with the real pynvml, whose calls answer with its own structures."""

import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from gpuagent.sources.nvml import XID
from gpuagent.sources.support import nvml_api
from gpuagent.sources.support.nvml_api import Nvml, NvmlError, NvmlLostError, NvmlUnsupportedError, open_nvml
from tests.support.nvml_replay import FIRST, fails


class EventQueue:
    """A fake of the driver's side of pynvml's event functions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # Events, as kind and number, and error codes.
        self.waiting: list[int | tuple[int, int]] = []
        self.registered: list[tuple[object, int]] = []
        self.open_sets = 0
        monkeypatch.setattr(pynvml, "nvmlEventSetCreate", self.create)
        monkeypatch.setattr(pynvml, "nvmlDeviceRegisterEvents", lambda *given: self.registered.append(given[:2]))
        monkeypatch.setattr(pynvml, "nvmlEventSetWait_v2", self.wait)
        monkeypatch.setattr(pynvml, "nvmlEventSetFree", self.free)

    def create(self) -> object:
        self.open_sets += 1
        return "a set"

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
    return EventQueue(monkeypatch)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch, queue: EventQueue) -> Iterator[Nvml]:
    """Open a session through the real pynvml, without a driver."""
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: f"handle of {uuid}")
    nvml = open_nvml()
    yield nvml
    nvml.close()
    assert queue.open_sets == 0


def answer(monkeypatch: pytest.MonkeyPatch, function: str, value: object) -> None:
    monkeypatch.setattr(pynvml, function, lambda *_arguments: value)


@pytest.mark.parametrize(
    ("function", "value", "plain"),
    [
        ("nvmlDeviceGetUtilizationRates", pynvml.c_nvmlUtilization_t(gpu=97, memory=40), {"gpu": 97, "memory": 40}),
        (
            "nvmlDeviceGetMemoryInfo",
            pynvml.c_nvmlMemory_v2_t(version=1, total=10, reserved=1, free=4, used=5),
            {"version": 1, "total": 10, "reserved": 1, "free": 4, "used": 5},
        ),
        ("nvmlDeviceGetCudaComputeCapability", (9, 0), [9, 0]),
        (
            "nvmlDeviceGetComputeRunningProcesses_v3",
            [pynvml.nvmlFriendlyObject({"pid": 7, "usedGpuMemory": None})],
            [{"pid": 7, "usedGpuMemory": None}],
        ),
        ("nvmlDeviceGetName", b"NVIDIA L4", "NVIDIA L4"),
    ],
)
def test_answers_become_json_values(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch, function: str, value: object, plain: object
) -> None:
    answer(monkeypatch, function, value)
    assert nvml.ask(function, FIRST) == plain
    assert json.loads(json.dumps(nvml.ask(function, FIRST))) == plain


def field_value(**members: Any) -> Any:
    value = pynvml.c_nvmlFieldValue_t(nvmlReturn=members.pop("code", 0), valueType=members.pop("kind", 1))
    for name, number in members.items():
        setattr(value.value, name, number)
    return [value]


def test_a_field_value_is_a_number_or_unsupported(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "nvmlDeviceGetFieldValues", field_value(kind=pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, uiVal=76123))
    assert nvml.ask("nvmlDeviceGetFieldValues", FIRST, 186) == 76123
    answer(monkeypatch, "nvmlDeviceGetFieldValues", field_value(kind=pynvml.NVML_VALUE_TYPE_DOUBLE, dVal=1.5))
    assert nvml.ask("nvmlDeviceGetFieldValues", FIRST, 186) == 1.5
    answer(monkeypatch, "nvmlDeviceGetFieldValues", field_value(code=pynvml.NVML_ERROR_NOT_SUPPORTED))
    with pytest.raises(NvmlUnsupportedError, match="Not Supported"):
        nvml.ask("nvmlDeviceGetFieldValues", FIRST, 186)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NOT_SUPPORTED", NvmlUnsupportedError),
        ("NO_PERMISSION", NvmlUnsupportedError),
        ("FUNCTION_NOT_FOUND", NvmlUnsupportedError),
        ("ARGUMENT_VERSION_MISMATCH", NvmlUnsupportedError),
        *((name, NvmlLostError) for name in ("GPU_IS_LOST", "UNINITIALIZED", "DRIVER_NOT_LOADED")),
        *((name, NvmlError) for name in ("UNKNOWN", "TIMEOUT")),
    ],
)
def test_errors_are_translated(nvml: Nvml, monkeypatch: pytest.MonkeyPatch, name: str, kind: type[NvmlError]) -> None:
    code = getattr(pynvml, f"NVML_ERROR_{name}")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTemperature", fails(code))
    with pytest.raises(NvmlError) as raised:
        nvml.ask("nvmlDeviceGetTemperature", FIRST, 0)
    assert type(raised.value) is kind
    assert raised.value.code == code


def test_our_version_of_memory_info_is_pynvmls_and_a_function_that_it_lacks_unsupported(nvml: Nvml) -> None:
    assert pynvml.nvmlMemory_v2 == 0x02000028
    with pytest.raises(NvmlUnsupportedError):
        nvml.ask("nvmlDeviceGetSomethingOfTheFuture", FIRST)


def test_an_unreachable_gpu_does_not_hide_the_others(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(index: int) -> str:
        if index == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return f"handle {index}"

    answer(monkeypatch, "nvmlDeviceGetCount", 2)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", handle)
    answer(monkeypatch, "nvmlDeviceGetUUID", FIRST)
    assert nvml.devices() == [FIRST]
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", fails(pynvml.NVML_ERROR_GPU_IS_LOST))
    with pytest.raises(NvmlLostError):
        nvml.devices()


def test_a_session_closes_without_its_driver_and_none_starts(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlShutdown", fails(pynvml.NVML_ERROR_UNINITIALIZED))
    nvml.close()
    monkeypatch.setattr(pynvml, "nvmlInit", fails(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    with pytest.raises(NvmlLostError) as raised:
        open_nvml()
    assert raised.value.no_library


def test_a_node_without_the_library_does_without_pynvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pynvml")
    monkeypatch.setattr(nvml_api, "_LIBRARY", "libno-such-driver.so.1")
    with pytest.raises(NvmlLostError) as raised:
        open_nvml()
    assert raised.value.no_library
    assert "pynvml" not in sys.modules


def test_events_count_from_the_first_call_on_and_a_flood_is_read_in_parts(nvml: Nvml, queue: EventQueue) -> None:
    assert nvml.events(FIRST, XID) == []
    queue.waiting = [(8, 79), (8, 31)]
    assert nvml.events(FIRST, XID) == [(8, 79), (8, 31)]
    assert nvml.events(FIRST, XID) == []
    queue.waiting = [(8, 13)] * 1000
    assert 0 < len(nvml.events(FIRST, XID)) < 1000
    assert queue.registered == [(f"handle of {FIRST}", pynvml.nvmlEventTypeXidCriticalError)]


def test_events_before_a_loss_are_kept(nvml: Nvml, queue: EventQueue) -> None:
    queue.waiting = [(8, 79), pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_GPU_IS_LOST]
    assert nvml.events(FIRST, XID) == [(8, 79)]
    with pytest.raises(NvmlLostError):
        nvml.events(FIRST, XID)
    assert nvml.events(FIRST, XID) == []
    assert len(queue.registered) == 2


def test_events_of_drivers_that_report_them_in_the_old_way(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = [(8, 79)]

    def wait(event_set: object, event: Any, timeout_millis: int) -> int:
        assert (event_set, timeout_millis) == ("a set", 0)
        if waiting:
            # This way ends before the two last members.
            event._obj.eventType, event._obj.eventData = waiting.pop()
            return 0
        return int(pynvml.NVML_ERROR_TIMEOUT)

    monkeypatch.setattr(pynvml, "nvmlEventSetWait_v2", fails(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND))
    monkeypatch.setattr(pynvml, "nvmlLib", SimpleNamespace(nvmlEventSetWait=wait))
    assert nvml.events(FIRST, XID) == [(8, 79)]
    assert nvml.events(FIRST, XID) == []


def test_a_gpu_without_events_is_unsupported(nvml: Nvml, monkeypatch: pytest.MonkeyPatch, queue: EventQueue) -> None:
    monkeypatch.setattr(pynvml, "nvmlDeviceRegisterEvents", fails(pynvml.NVML_ERROR_NOT_SUPPORTED))
    with pytest.raises(NvmlUnsupportedError):
        nvml.events(FIRST, XID)
    assert queue.open_sets == 0


@pytest.mark.parametrize("fails_with", [None, pynvml.NVML_ERROR_NOT_FOUND])
def test_a_call_with_another_time_or_after_a_failure_is_no_first_one(
    monkeypatch: pytest.MonkeyPatch, nvml: Nvml, fails_with: int | None
) -> None:
    locked: list[bool] = []

    def answer(*_arguments: object) -> list[int]:
        locked.append(nvml_api._FIRST_CALLS.locked())
        if fails_with is not None:
            raise pynvml.NVMLError(fails_with)
        return []

    monkeypatch.setattr(pynvml, "nvmlDeviceGetProcessUtilization", answer)
    for micros in range(3):
        with contextlib.suppress(NvmlError):
            nvml.ask("nvmlDeviceGetProcessUtilization", FIRST, micros)
    assert locked == [True, False, False]


def test_the_first_call_for_each_field_is_a_first_one(monkeypatch: pytest.MonkeyPatch, nvml: Nvml) -> None:
    locked: list[bool] = []
    value = SimpleNamespace(nvmlReturn=0, valueType=0, value=SimpleNamespace(dVal=1.0))

    def answer(*_arguments: object) -> list[SimpleNamespace]:
        locked.append(nvml_api._FIRST_CALLS.locked())
        return [value]

    monkeypatch.setattr(pynvml, "nvmlDeviceGetFieldValues", answer)
    for field in (1, 2, 1):
        nvml.ask("nvmlDeviceGetFieldValues", FIRST, field)
    assert locked == [True, True, False]


def test_first_calls_of_two_sessions_are_never_made_at_once(monkeypatch: pytest.MonkeyPatch, nvml: Nvml) -> None:
    inside = threading.Barrier(2)
    overlaps: list[str] = []

    def answer_alone(*_arguments: object) -> int:
        # Only a second call at the same time lets this one pass the barrier.
        with contextlib.suppress(threading.BrokenBarrierError):
            inside.wait(timeout=0.1)
            overlaps.append("two calls at once")
        return 1

    monkeypatch.setattr(pynvml, "nvmlDeviceGetTemperature", answer_alone)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetClockInfo", answer_alone)
    other = open_nvml()
    asked = [
        threading.Thread(target=nvml.ask, args=("nvmlDeviceGetTemperature", FIRST, 0)),
        threading.Thread(target=other.ask, args=("nvmlDeviceGetClockInfo", FIRST, 1)),
    ]
    for thread in asked:
        thread.start()
    for thread in asked:
        thread.join()
    assert overlaps == []
