"""NVML's cheap questions as prepared calls: no Python runs between two of them; and GPM.

pynvml looks up each function, and makes and fills a structure for each call. Between two ticks the processor's caches
forget all that: eight questions took 230 µs of Python, and 3 µs in the library."""

import contextlib
import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

# An NVML function of pynvml and its arguments after the device.
Call = tuple[str, tuple[int, ...]]

# The place of an answer that is one number. Of 32 bits it leaves the upper half 0: NVML's platforms are little-endian.
_NUMBER = ctypes.c_ulonglong

# The member of nvmlValue_t that holds a value, by nvmlValueType_t.
VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")

# nvmlSample_t in the notation of `struct`, by nvmlValueType_t: a time stamp, and a value in 8 bytes.
_SAMPLES = ("=Qd", "=QI4x", "=QQ", "=QQ", "=Qq", "=Qi4x", "=QH6x")


@dataclass(frozen=True, slots=True)
class _Step:
    """One call: the library's function, its arguments, and the type that it writes."""

    function: str
    before: tuple[int, ...]
    kind: Any
    # Values that the caller sets in the structure.
    given: Mapping[str, int]


def _step_of(pynvml: Any, call: Call) -> _Step:
    function, arguments = call
    if function == "nvmlDeviceGetUtilizationRates":
        return _Step(function, (), pynvml.c_nvmlUtilization_t, {})
    if function == "nvmlDeviceGetMemoryInfo":
        if arguments:
            return _Step(f"{function}_v2", (), pynvml.c_nvmlMemory_v2_t, {"version": arguments[0]})
        return _Step(function, (), pynvml.c_nvmlMemory_t, {})
    if function == "nvmlDeviceGetFieldValues":
        return _Step(function, (1,), pynvml.c_nvmlFieldValue_t, {"fieldId": arguments[0]})
    return _Step(function, arguments, _NUMBER, {})


class Batch:
    """The prepared calls of one device; pynvml's exceptions pass through."""

    def __init__(self, pynvml: Any, handle: Any, calls: Sequence[Call]) -> None:
        self.calls = calls
        steps = [_step_of(pynvml, call) for call in calls]
        fields = [(f"answer_{position}", plain_type(step.kind)) for position, step in enumerate(steps)]
        self._type: Any = type("Answers", (ctypes.Structure,), {"_fields_": fields})
        self._error: Callable[[int], Exception] = pynvml.NVMLError
        self._answers = self._type()
        self._names = [name for name, _ in fields]
        self._calls: list[tuple[Callable[..., int], tuple[Any, ...]]] = []
        for step, (name, _) in zip(steps, fields, strict=True):
            place = ctypes.byref(self._answers, getattr(self._type, name).offset)
            self._calls.append((getattr(pynvml.nvmlLib, step.function), (handle, *step.before, place)))
            for member, number in step.given.items():
                setattr(getattr(self._answers, name), member, number)

    def read(self) -> bytes:
        """Make all calls; return what they wrote, for `decode`."""
        for function, arguments in self._calls:
            if code := function(*arguments):
                raise self._error(code)
        return bytes(self._answers)

    def decode(self, written: bytes) -> list[Any]:
        """Return the answers in the form of `Nvml.ask`; None for a field without one."""
        answers = self._type.from_buffer_copy(written)
        return [_plain(getattr(answers, name)) for name in self._names]


def plain_type(kind: Any) -> Any:
    """Return a structure of pynvml without its conversion of each member that is looked at."""
    return type("Plain", (ctypes.Structure,), {"_fields_": kind._fields_}) if hasattr(kind, "_fields_") else kind


def _plain(answer: Any) -> Any:
    if not isinstance(answer, ctypes.Structure):
        return answer
    if hasattr(answer, "nvmlReturn"):
        return None if answer.nvmlReturn else getattr(answer.value, VALUE_MEMBERS[answer.valueType])
    return {name: getattr(answer, name) for name, *_ in answer._fields_}


class SampleBuffer:
    """A buffer for the samples that a driver holds, so that one call fetches them.

    pynvml asks for their number each time before, which costs as much. Its exceptions pass through.
    """

    def __init__(self, pynvml: Any, handle: Any, kind: int) -> None:
        self._pynvml = pynvml
        self._handle = handle
        self._kind = kind
        self._samples: Any = None
        self._type, self._count = ctypes.c_uint(), ctypes.c_uint()

    def read(self, since_micros: int) -> list[tuple[int, float]]:
        """Return time stamp in microseconds and number of each sample."""
        code = self._fetch(since_micros) if self._samples else self._pynvml.NVML_ERROR_INSUFFICIENT_SIZE
        if code == self._pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
            self._samples = None
            self._check(self._fetch(since_micros))
            # Some more, in case that the driver has new ones until the next call.
            self._samples = (self._pynvml.c_nvmlSample_t * (2 * self._count.value + 8))()
            code = self._fetch(since_micros)
        self._check(code)
        layout = struct.Struct(_SAMPLES[self._type.value])
        return list(layout.iter_unpack(memoryview(self._samples).cast("B")[: self._count.value * layout.size]))

    def _fetch(self, since_micros: int) -> int:
        self._count.value = len(self._samples) if self._samples else 0
        code: int = self._pynvml.nvmlLib.nvmlDeviceGetSamples(
            self._handle,
            self._kind,
            ctypes.c_ulonglong(since_micros),
            ctypes.byref(self._type),
            ctypes.byref(self._count),
            self._samples,
        )
        return code

    def _check(self, code: int) -> None:
        if code:
            raise self._pynvml.NVMLError(code)


class ProcessInfoV1(ctypes.Structure):
    """nvmlProcessInfo_v1_t of nvml.h."""

    _fields_ = (("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong))


def list_processes_v1(pynvml: Any, handle: Any) -> list[Any]:
    """Return the compute processes on a GPU as old drivers such as 440 list them; pynvml knows later ways alone."""
    count = ctypes.c_uint()
    processes: Any = None
    code = pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    while code == pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
        # Some more, in case that others start until the next call.
        count.value = 2 * count.value + 8
        processes = (ProcessInfoV1 * count.value)()
        code = pynvml.nvmlLib.nvmlDeviceGetComputeRunningProcesses(handle, ctypes.byref(count), processes)
    if code:
        raise pynvml.NVMLError(code)
    found = [pynvml.nvmlStructToFriendlyObject(process) for process in processes[: count.value]]
    for process in found:
        if process.usedGpuMemory == pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value:
            process.usedGpuMemory = None
    return found


def wait_event_v1(pynvml: Any, event_set: Any) -> Any:
    """Return a waiting event as old drivers such as 440 report it; pynvml knows later ways alone."""
    # The structure of later versions begins as that of the first.
    event = pynvml.c_nvmlEventData_t()
    if code := pynvml.nvmlLib.nvmlEventSetWait(event_set, ctypes.byref(event), 0):
        raise pynvml.NVMLError(code)
    return event


SampleT = TypeVar("SampleT")

# Hopper's counters need this long between two samples; closer ones yield wrong figures.
MIN_SPAN_NANO = 100_000_000

_SLOTS = 4

# Closer samples are not kept, so that the oldest kept one is always old enough.
_MIN_GAP_NANO = MIN_SPAN_NANO // (_SLOTS - 1) + 1


@dataclass(slots=True)
class _Slot(Generic[SampleT]):
    sample: SampleT
    taken_nano: int | None = None


class SampleRing(Generic[SampleT]):
    """A ring of the last few samples of one GPU: at any poll one is old enough, and not much older."""

    def __init__(self, allocate: Callable[[], SampleT]) -> None:
        self._slots = [_Slot(allocate()) for _ in range(_SLOTS)]
        self._newest_nano: int | None = None

    def take(self, fill: Callable[[SampleT], object], now_nano: int) -> tuple[SampleT, SampleT] | None:
        """Fill a sample, and return it after the latest that is old enough; None: no sample is that old.

        Args:
            fill: writes the GPU's counters into a sample; its exceptions pass through.
            now_nano: a monotonic clock.
        """
        if self._newest_nano is not None and now_nano - self._newest_nano < _MIN_GAP_NANO:
            return None
        slot = min(self._slots, key=lambda slot: -1 if slot.taken_nano is None else slot.taken_nano)
        slot.taken_nano = None
        fill(slot.sample)
        older = [
            old for old in self._slots if old.taken_nano is not None and now_nano - old.taken_nano >= MIN_SPAN_NANO
        ]
        slot.taken_nano = self._newest_nano = now_nano
        if not older:
            return None
        return max(older, key=lambda old: old.taken_nano or 0).sample, slot.sample

    def release(self, free: Callable[[SampleT], object]) -> None:
        """Free the samples; the ring cannot be used afterwards."""
        for slot in self._slots:
            free(slot.sample)
        self._slots.clear()


class Counters:
    """GPM of one GPU or MIG instance, through pynvml, whose exceptions pass through."""

    def __init__(self, pynvml: Any, handle: Any, *, is_instance: bool) -> None:
        self._pynvml = pynvml
        # GPM takes handles of GPUs only: with driver 535.129, one of an instance makes other questions fail as well.
        gpu = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle) if is_instance else handle
        if not pynvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        if is_instance:
            gpu_instance = pynvml.nvmlDeviceGetGpuInstanceId(handle)
            self._fill = lambda sample: pynvml.nvmlGpmMigSampleGet(gpu, gpu_instance, sample)
        else:
            self._fill = lambda sample: pynvml.nvmlGpmSampleGet(gpu, sample)
        self._ring: SampleRing[Any] = SampleRing(pynvml.nvmlGpmSampleAlloc)
        # The last question's metrics, and its structure of 10 KiB.
        self._asked: Sequence[int] = ()
        self._request: Any = None
        self._answers: Sequence[Any] = ()

    def read(self, metrics: Sequence[int], now_nano: int) -> Sequence[Any] | None:
        """Return `metricId`, `nvmlReturn` and, where that is 0, `value` of each metric since at least 100 ms before.

        None: no sample is that old, or one was just taken.
        """
        pair = self._ring.take(self._fill, now_nano)
        if pair is None:
            return None
        if self._request is None or self._asked != metrics:
            version = self._pynvml.NVML_GPM_METRICS_GET_VERSION
            self._request = self._pynvml.c_nvmlGpmMetricsGet_t(version=version, numMetrics=len(metrics))
            for position, metric in enumerate(metrics):
                self._request.metrics[position].metricId = metric
            self._asked = metrics
            # The same memory without pynvml's conversion of each member that is looked at.
            kind = plain_type(self._pynvml.c_nvmlGpmMetric_t) * len(metrics)
            self._answers = kind.from_buffer(self._request, type(self._request).metrics.offset)
        self._request.sample1, self._request.sample2 = pair
        self._pynvml.nvmlGpmMetricsGet(self._request)
        return self._answers

    def release(self) -> None:
        """Free the samples; the counters cannot be used afterwards."""
        with contextlib.suppress(self._pynvml.NVMLError):
            self._ring.release(self._pynvml.nvmlGpmSampleFree)
