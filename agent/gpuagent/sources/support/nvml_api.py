"""The one door to NVML. Nothing else imports pynvml; what goes in and comes out is plain data.

That lets a recording of a real GPU stand in for one: a JSON object of call → answer or error.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from gpuagent.errors import SourceUnavailableError
from gpuagent.sources.support.gpm import SampleRing

_LIBRARY_NOT_FOUND = 12
_GPU_IS_LOST = 15

_UNSUPPORTED = frozenset({2, 3, 4, 13, 22, 25, 26, 30})
"""Invalid argument (to an older driver), not supported, no permission, function not found, no ECC, version mismatch,
deprecated: asking again gets the same answer."""

_LOST = frozenset({1, 9, _LIBRARY_NOT_FOUND, _GPU_IS_LOST, 16, 18, 28})
"""Not initialised, no driver, no library, lost, needs a reset, other driver version, GPU not found: nothing of this GPU
can be read."""

_REMEDIES = {
    4: "let this user open /dev/nvidia*",
    9: "see whether nvidia-smi works; load the NVIDIA driver",
    _LIBRARY_NOT_FOUND: "on a node with a GPU: install the NVIDIA driver; "
    "in a container, hand the GPU in (docker --gpus all, apptainer --nv, ch-fromhost --nvidia)",
    18: "the driver was updated while loaded: reload the nvidia modules or reboot",
    999: "see whether nvidia-smi works; in a container, restart it: it has lost the GPU",
}


_VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""The member of nvmlValue_t that holds a value, by nvmlValueType_t."""


class NvmlError(Exception):
    """NVML gave no answer this time."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code

    @property
    def no_library(self) -> bool:
        """Whether NVML is not installed here at all."""
        return self.code == _LIBRARY_NOT_FOUND


class NvmlUnsupportedError(NvmlError):
    """This GPU, driver or user never gets that answer."""


class NvmlLostError(NvmlError):
    """The GPU, or the driver, cannot be reached any more."""


def nvml_error(code: int, words: str) -> NvmlError:
    """Return the error that stands for an NVML return code."""
    if code in _UNSUPPORTED:
        return NvmlUnsupportedError(code, words)
    return NvmlLostError(code, words) if code in _LOST else NvmlError(code, words)


def unavailable(error: NvmlError) -> SourceUnavailableError:
    """Return why a source of NVML cannot work, and what to do about it."""
    return SourceUnavailableError(f"NVML: {error}", _REMEDIES.get(error.code))


class Nvml(Protocol):
    """An open session with NVML. Every session counts: NVML really ends, and starts anew, when all are closed."""

    def devices(self) -> Sequence[str]:
        """Return the UUIDs of the GPUs that can be reached, in NVML's order.

        Raises:
            NvmlError: there are GPUs, but none can be reached.
        """
        ...

    def ask(self, function: str, device: str | None = None, *arguments: int) -> Any:
        """Return what pynvml's `function` says of the GPU with this UUID (None: of the system), as JSON would hold it.

        Structures are dicts. `nvmlDeviceGetFieldValues` takes one field and returns its number;
        `nvmlDeviceGetSamples` returns pairs of time stamp and number.

        Raises:
            NvmlError: it says nothing.
        """
        ...

    def gpm(self, device: str, metrics: Sequence[int], now_nano: int) -> Mapping[int, float | None] | None:
        """Return GPM's figures of the GPU with this UUID, each for the time since a call at least 100 ms before.

        Metrics that the GPU does not have are left out, those that failed this time are None. None instead of all:
        there was no such call yet, or one just before.

        Raises:
            NvmlError: it has no GPM, or says nothing.
        """
        ...

    def close(self) -> None:
        """End the session."""
        ...


OpenNvml = Callable[[], Nvml]


def open_nvml() -> Nvml:
    """Start a session with the driver of this node.

    Raises:
        NvmlError: there is no driver, or it does not answer.
    """
    return _Driver()


class _Driver:
    """NVML itself, through pynvml."""

    def __init__(self) -> None:
        import pynvml  # 40 ms, which a node without GPU and every `--help` can spare

        self._pynvml = pynvml
        self._handles: dict[str, Any] = {}
        self._gpm_rings: dict[str, SampleRing[Any]] = {}
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise _translated(error) from error

    def devices(self) -> Sequence[str]:
        found: list[str] = []
        failure: NvmlError | None = None
        for index in range(self.ask("nvmlDeviceGetCount")):
            try:
                found.append(self._uuid_at(index))
            except NvmlError as error:
                failure = error
        if failure and not found:
            raise failure
        return found

    def _uuid_at(self, index: int) -> str:
        try:
            handle = self._pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = str(self._pynvml.nvmlDeviceGetUUID(handle))
        except self._pynvml.NVMLError as error:
            raise _translated(error) from error
        self._handles[uuid] = handle
        return uuid

    def ask(self, function: str, device: str | None = None, *arguments: int) -> Any:
        try:
            if device is None:
                return _plain(self._function(function)(*arguments))
            return _plain(self._function(function)(self._handle(device), *arguments))
        except self._pynvml.NVMLError as error:
            raise _translated(error) from error

    def _function(self, name: str) -> Callable[..., Any]:
        if name == "nvmlDeviceGetFieldValues":
            return self._field_value
        if name == "nvmlDeviceGetSamples":
            return self._samples
        function: Callable[..., Any] | None = getattr(self._pynvml, name, None)
        if function is None:
            raise NvmlUnsupportedError(self._pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, f"this pynvml has no {name}")
        return function

    def _handle(self, uuid: str) -> Any:
        if uuid not in self._handles:
            self._handles[uuid] = self._pynvml.nvmlDeviceGetHandleByUUID(uuid)
        return self._handles[uuid]

    def _field_value(self, handle: Any, field: int) -> float:
        answer = self._pynvml.nvmlDeviceGetFieldValues(handle, [field])[0]
        if answer.nvmlReturn:
            raise self._pynvml.NVMLError(answer.nvmlReturn)
        number: float = getattr(answer.value, _VALUE_MEMBERS[answer.valueType])
        return number

    def _samples(self, handle: Any, kind: int, since_micros: int) -> list[tuple[int, float]]:
        value_type, samples = self._pynvml.nvmlDeviceGetSamples(handle, kind, since_micros)
        member = _VALUE_MEMBERS[value_type]
        return [(sample.timeStamp, getattr(sample.sampleValue, member)) for sample in samples]

    def gpm(self, device: str, metrics: Sequence[int], now_nano: int) -> Mapping[int, float | None] | None:
        try:
            handle = self._handle(device)
            pair = self._gpm_ring(device, handle).take(
                lambda sample: self._pynvml.nvmlGpmSampleGet(handle, sample), now_nano
            )
            return None if pair is None else self._gpm_figures(*pair, metrics)
        except self._pynvml.NVMLError as error:
            raise _translated(error) from error

    def _gpm_ring(self, device: str, handle: Any) -> SampleRing[Any]:
        if device not in self._gpm_rings:
            if not self._pynvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                raise self._pynvml.NVMLError(self._pynvml.NVML_ERROR_NOT_SUPPORTED)
            self._gpm_rings[device] = SampleRing(self._pynvml.nvmlGpmSampleAlloc)
        return self._gpm_rings[device]

    def _gpm_figures(self, older: Any, newer: Any, metrics: Sequence[int]) -> Mapping[int, float | None]:
        request = self._pynvml.c_nvmlGpmMetricsGet_t(
            version=self._pynvml.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(metrics), sample1=older, sample2=newer
        )
        for position, metric in enumerate(metrics):
            request.metrics[position].metricId = metric
        self._pynvml.nvmlGpmMetricsGet(request)
        answers = request.metrics[: len(metrics)]
        return {
            answer.metricId: None if answer.nvmlReturn else answer.value
            for answer in answers
            if answer.nvmlReturn not in _UNSUPPORTED
        }

    def close(self) -> None:
        self._handles.clear()
        for ring in self._gpm_rings.values():
            ring.release(self._pynvml.nvmlGpmSampleFree)
        self._gpm_rings.clear()
        try:
            self._pynvml.nvmlShutdown()
        except self._pynvml.NVMLError:
            return  # it is gone already, which is what was wanted


def _translated(error: Any) -> NvmlError:
    return nvml_error(error.value, str(error))


def _plain(answer: Any) -> Any:
    """Return what pynvml answered as JSON would hold it."""
    if answer is None or isinstance(answer, (int, float, str)):
        return answer
    if isinstance(answer, bytes):
        return answer.decode(errors="replace")
    if isinstance(answer, (list, tuple)):
        return [_plain(part) for part in answer]
    if isinstance(answer, ctypes.Structure):
        return {name: _plain(getattr(answer, name)) for name, *_ in answer._fields_}
    return {name: _plain(part) for name, part in vars(answer).items()}
