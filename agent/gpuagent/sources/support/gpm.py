"""GPM, the performance counters of Hopper and newer: figures are the change between two samples of a GPU."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gpuagent.sources.support.nvml_calls import plain_type

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
