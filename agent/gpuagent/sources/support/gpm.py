"""GPM, the performance counters of Hopper and newer: figures are what changed between two samples of a GPU."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

SampleT = TypeVar("SampleT")

# Hopper's counters need so long between two samples; nearer ones make figures that are wrong.
MIN_SPAN_NANO = 100_000_000

_SLOTS = 4

# Samples that lie closer together are not kept, so that the oldest kept one is always old enough.
_MIN_GAP_NANO = MIN_SPAN_NANO // (_SLOTS - 1) + 1


@dataclass(slots=True)
class _Slot(Generic[SampleT]):
    sample: SampleT
    taken_nano: int | None = None


class SampleRing(Generic[SampleT]):
    """The last few samples of one GPU: wherever a poll falls, there is one that is old enough, and not much older."""

    def __init__(self, allocate: Callable[[], SampleT]) -> None:
        self._slots = [_Slot(allocate()) for _ in range(_SLOTS)]
        self._newest_nano: int | None = None

    def take(self, fill: Callable[[SampleT], object], now_nano: int) -> tuple[SampleT, SampleT] | None:
        """Fill a sample, and return it behind the latest that is old enough; None: there is none yet.

        Args:
            fill: writes the GPU's counters into a sample; what it raises is passed on.
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
        """Give the samples back; the ring is of no use after that."""
        for slot in self._slots:
            free(slot.sample)
        self._slots.clear()


class Counters:
    """GPM of one GPU or MIG instance, through pynvml; what pynvml raises is passed on."""

    def __init__(self, pynvml: Any, handle: Any, *, is_instance: bool) -> None:
        self._pynvml = pynvml
        # The handle of an instance itself is never given: GPM takes those of GPUs only, and of driver 535.129 it is
        # reported that other questions fail as well once it was given another.
        gpu = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle) if is_instance else handle
        if not pynvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        self._fill = self._filler(gpu, pynvml.nvmlDeviceGetGpuInstanceId(handle) if is_instance else None)
        self._ring: SampleRing[Any] = SampleRing(pynvml.nvmlGpmSampleAlloc)

    def _filler(self, gpu: Any, gpu_instance: int | None) -> Callable[[Any], object]:
        if gpu_instance is None:
            return lambda sample: self._pynvml.nvmlGpmSampleGet(gpu, sample)
        return lambda sample: self._pynvml.nvmlGpmMigSampleGet(gpu, gpu_instance, sample)

    def read(self, metrics: Sequence[int], now_nano: int) -> Sequence[Any] | None:
        """Return `metricId`, `nvmlReturn` and, where that is 0, `value` of each metric since at least 100 ms before.

        None: no sample is that old, or one was just taken.
        """
        pair = self._ring.take(self._fill, now_nano)
        return None if pair is None else self._compare(*pair, metrics)

    def _compare(self, older: Any, newer: Any, metrics: Sequence[int]) -> Sequence[Any]:
        request = self._pynvml.c_nvmlGpmMetricsGet_t(
            version=self._pynvml.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(metrics), sample1=older, sample2=newer
        )
        for position, metric in enumerate(metrics):
            request.metrics[position].metricId = metric
        self._pynvml.nvmlGpmMetricsGet(request)
        answers: Sequence[Any] = request.metrics[: len(metrics)]
        return answers

    def release(self) -> None:
        """Give the samples back; this is of no use after that."""
        with contextlib.suppress(self._pynvml.NVMLError):
            self._ring.release(self._pynvml.nvmlGpmSampleFree)
