"""Prepared calls against a library of C functions that write what nvml.h describes."""

import ctypes
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pynvml
import pytest

from gpuagent.sources import nvml as gpu
from gpuagent.sources.nvml_processes import running_processes
from gpuagent.sources.support.gpus import Question
from gpuagent.sources.support.nvml_api import Nvml, NvmlError, NvmlLostError, open_nvml
from gpuagent.sources.support.nvml_calls import SampleBuffer
from tests.support.nvml_replay import FIRST, fails

WAYS = [way for chains in (gpu.QUESTIONS, gpu.HEALTH_QUESTIONS) for chain in chains for way in chain]
CALLS = tuple(chain[0].call for chain in gpu.QUESTIONS if isinstance(chain[0], Question))


class Library:
    """C functions by name. `codes` has the return codes of those that fail, `called` the names in order."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.called: list[str] = []
        self._functions: dict[str, Any] = {}
        self.has("nvmlDeviceGetUtilizationRates", pynvml.c_nvmlUtilization_t, gpu=97, memory=40)
        self.has("nvmlDeviceGetMemoryInfo", pynvml.c_nvmlMemory_t, total=10, free=4, used=6)
        self.has("nvmlDeviceGetMemoryInfo_v2", pynvml.c_nvmlMemory_v2_t, total=10, reserved=1, free=4, used=5)
        self.has("nvmlDeviceGetFieldValues", pynvml.c_nvmlFieldValue_t, 1, valueType=1)
        self.has("nvmlDeviceGetTemperature", ctypes.c_uint, 1, value=31)
        self.has("nvmlDeviceGetClockInfo", ctypes.c_uint, 1, value=1980)
        for name in ("EventReasons", "ThrottleReasons"):
            self.has(f"nvmlDeviceGetCurrentClocks{name}", ctypes.c_ulonglong, value=2**40)
        self.has("nvmlDeviceGetTotalEccErrors", ctypes.c_ulonglong, 2, value=3)
        self.has("nvmlDeviceGetPowerUsage", ctypes.c_uint, value=76000)
        for name in ("Generation", "Width"):
            self.has(f"nvmlDeviceGetCurrPcieLink{name}", ctypes.c_uint, value=5)

    def has(self, name: str, kind: Any, numbers: int = 0, **members: int) -> None:
        """Add a function that takes a device and so many numbers, and writes `members` into a `kind`."""

        def answer(_device: int, *given: int) -> int:
            self.called.append(name)
            written = kind.from_address(given[-1])
            for member, value in members.items():
                setattr(written, member, value)
            if name == "nvmlDeviceGetFieldValues":
                written.value.uiVal = 1000 * written.fieldId
                written.nvmlReturn = self.codes.get("field", 0)
            if name == "nvmlDeviceGetMemoryInfo_v2":
                assert written.version == pynvml.nvmlMemory_v2
            return self.codes.get(name, 0)

        arguments = [ctypes.c_void_p, *[ctypes.c_uint] * numbers, ctypes.c_void_p]
        self.add(name, ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(answer))

    def add(self, name: str, function: Any) -> None:
        """Add a C function."""
        self._functions[name] = function

    def __getattr__(self, name: str) -> Any:
        if name not in self._functions:
            raise AttributeError(name)
        return self._functions[name]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    library = Library()
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    return library


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch, library: Library) -> Iterator[Nvml]:
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda _uuid: ctypes.c_void_p(7))
    nvml = open_nvml()
    yield nvml
    nvml.close()


def test_prepared_calls_answer_as_single_ones(nvml: Nvml) -> None:
    answers = list(nvml.poll(FIRST, CALLS)())
    assert answers == [
        {"gpu": 97, "memory": 40},
        {"version": pynvml.nvmlMemory_v2, "total": 10, "reserved": 1, "free": 4, "used": 5},
        186_000,
        31,
        1980,
        2**40,
        1980,
        3,
    ]
    # Those of an earlier reading are not overwritten by the next.
    first = nvml.poll(FIRST, CALLS)
    nvml.poll(FIRST, (("nvmlDeviceGetTemperature", (0,)),))
    assert list(first()) == answers


@pytest.mark.parametrize("question", [way for way in WAYS if isinstance(way, Question)], ids=lambda one: one.call[0])
def test_every_question_of_one_call_can_be_prepared(nvml: Nvml, question: Question) -> None:
    (answer,) = nvml.poll(FIRST, (question.call,))()
    assert question.convert(answer)


def test_the_first_call_that_fails_ends_a_reading(nvml: Nvml, library: Library) -> None:
    library.codes["nvmlDeviceGetTemperature"] = pynvml.NVML_ERROR_UNKNOWN
    with pytest.raises(NvmlError, match="Unknown Error"):
        nvml.poll(FIRST, CALLS)
    assert library.called[-1] == "nvmlDeviceGetTemperature"
    library.codes.clear()
    assert nvml.poll(FIRST, CALLS)()


def test_calls_that_failed_are_not_kept(nvml: Nvml, library: Library) -> None:
    for _ in range(3):
        calls = (*CALLS[:1], *CALLS[1:])  # others each time, as they are prepared again
        nvml.poll(FIRST, calls)
        library.codes["nvmlDeviceGetTemperature"] = pynvml.NVML_ERROR_UNKNOWN
        with pytest.raises(NvmlError):
            nvml.poll(FIRST, calls)
        library.codes.clear()
    assert not vars(nvml)["_batches"]


def test_a_lost_gpu_is_looked_up_again(nvml: Nvml, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml.poll(FIRST, CALLS)
    library.codes["nvmlDeviceGetUtilizationRates"] = pynvml.NVML_ERROR_GPU_IS_LOST
    with pytest.raises(NvmlLostError):
        nvml.poll(FIRST, CALLS)
    library.codes.clear()
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", fails(pynvml.NVML_ERROR_NOT_FOUND))
    with pytest.raises(NvmlError, match="Not Found"):
        nvml.poll(FIRST, CALLS)


def test_a_field_that_fails_for_a_moment_is_absent(nvml: Nvml, library: Library) -> None:
    library.codes["field"] = pynvml.NVML_ERROR_UNKNOWN
    assert list(nvml.poll(FIRST, CALLS)())[2:4] == [None, 31]


class Driver:
    """A fake of nvmlDeviceGetSamples, which counts its calls."""

    def __init__(self, held: list[tuple[int, int]]) -> None:
        self.held = held
        self.calls = 0

    def function(self) -> Callable[..., int]:
        def answer(_device: int, _kind: int, _since: int, value_type: Any, count: Any, samples: int | None) -> int:
            self.calls += 1
            value_type[0] = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
            if not self.held:
                return int(pynvml.NVML_ERROR_NOT_FOUND)
            if samples and count[0] < len(self.held):
                return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
            count[0] = len(self.held)
            if samples:
                # The driver leaves what it likes in the half that an unsigned int does not use.
                written = b"".join(struct.pack("=QII", micros, value, 0xFFFF_FFFF) for micros, value in self.held)
                ctypes.memmove(samples, written, len(written))
            return 0

        number = ctypes.POINTER(ctypes.c_uint)
        kinds = (ctypes.c_void_p, ctypes.c_uint, ctypes.c_ulonglong, number, number, ctypes.c_void_p)
        return ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(answer)


def test_held_samples_are_fetched_by_one_call_once_their_number_is_known(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver([(1_700_000_000_000_000 + 20_000 * number, 76_000 + number) for number in range(119)])
    monkeypatch.setattr(library, "nvmlDeviceGetSamples", driver.function(), raising=False)
    buffer = SampleBuffer(pynvml, ctypes.c_void_p(7), 0)
    assert buffer.read(0) == driver.held
    assert driver.calls == 2
    driver.held = [*driver.held[1:], (1_700_000_000_000_000 + 20_000 * 119, 5)]
    assert buffer.read(0) == driver.held
    assert driver.calls == 3
    # More than fit: they are counted again.
    driver.held = driver.held * 5
    assert buffer.read(0) == driver.held
    driver.held = []
    with pytest.raises(pynvml.NVMLError_NotFound):
        buffer.read(0)


@pytest.mark.parametrize("running", [0, 2, 9])
def test_processes_as_old_drivers_list_them(nvml: Nvml, library: Library, running: int) -> None:
    def list_all(_device: int, count: Any, places: int) -> int:
        fits = count[0] >= running
        count[0] = running
        if not fits:
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        # A driver without permission writes the largest number instead of the memory.
        rows = [struct.pack("=I4xQ", 4711 + number, 400 if number else 2**64 - 1) for number in range(running)]
        ctypes.memmove(places, b"".join(rows), 16 * running)
        return 0

    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint), ctypes.c_void_p)
    library.add("nvmlDeviceGetComputeRunningProcesses", kind(list_all))
    assert running_processes(nvml, FIRST) == [
        {"pid": 4711 + number, "usedGpuMemory": 400 if number else None} for number in range(running)
    ]
