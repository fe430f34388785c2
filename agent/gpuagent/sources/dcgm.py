"""The use of a GPU's parts by DCGM, where there is no GPM: Volta to Ada. `dcgmi dmon -e 1002,1003,…` shows the same.

DCGM has the GPU's counters to itself before Hopper. While a run has a profiler that needs them (ncu, nsys), this source
releases them; torch's profiler traces activities, which needs none.
"""

import contextlib
import shutil
from collections.abc import Iterable, Mapping

from gpuagent.clock import Instant
from gpuagent.errors import SourceError, SourceUnavailableError
from gpuagent.sources.source import Lane, Reading, SourceContext
from gpuagent.sources.support.dcgm import COLUMNS, DcgmError, Monitor, ask, dmon_arguments, parse_fields, parse_gpus
from gpuagent.sources.support.files import read_text
from gpuagent.sources.support.gpus import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, device_rows
from gpuagent.sources.support.nvml_api import Nvml, NvmlError, NvmlUnsupportedError, unavailable
from gpuagent.sources.support.processes import RunProcesses, read_process_file
from gpuagent_common.backoff import Backoff

# Programs that need the counters for themselves.
PROFILERS = frozenset({"ncu", "nsys"})

# Ten missing rows: dcgmi hangs.
_SILENT_NANO = 10_000_000_000

_INSTALL = "install NVIDIA's DCGM (datacenter-gpu-manager) and start its host engine: systemctl start nvidia-dcgm"
_START = "start DCGM's host engine: systemctl start nvidia-dcgm, or nv-hostengine as root"
_ADMIN_ONLY = (
    "run nv-hostengine as root, or have an administrator load the driver with NVreg_RestrictProfilingToAdminUsers=0: "
    "only root may read its counters"
)
_PROFILING = "run nv-hostengine as root; `dcgmi modules -l` shows whether DCGM's profiling module is loaded"


class Dcgm:
    """Activity of the SMs, pipes, memory and links of each GPU without GPM, over the second before.

    On the slow lane, since finding the host engine again after it was gone takes seconds. Otherwise a reading takes the
    printed rows; the cost of the child and of the host engine is not in the cost of this source.
    """

    name = "dcgm"
    lane = Lane.SLOW
    # dcgmi prints once a second, without a time stamp: a row is dated at most half a second late.
    max_rate_hz = 2.0

    def __init__(self, context: SourceContext) -> None:
        # The UUIDs of the GPUs that have no GPM.
        try:
            with contextlib.closing(context.open_nvml()) as nvml:
                uuids = [uuid for uuid in nvml.devices() if not _has_gpm(nvml, uuid)]
        except NvmlError as error:
            raise unavailable(error) from error
        if not uuids:
            raise SourceUnavailableError("no GPU needs it: GPM has the same figures without DCGM")
        self._uuids = uuids
        dcgmi = shutil.which("dcgmi")
        if dcgmi is None:
            raise SourceUnavailableError("these GPUs have no GPM, and no dcgmi (DCGM) is on the PATH", _INSTALL)
        self._dcgmi = dcgmi
        self._proc = context.proc
        # One printed row shows that the host engine runs and may read the counters.
        try:
            gpus = self._find_gpus()
        except DcgmError as error:
            raise SourceUnavailableError(f"DCGM: {error}", _START) from error
        try:
            ask(self._dcgmi, *dmon_arguments(list(gpus), self._find_fields(gpus)), "--count", "1")
        except DcgmError as error:
            parameters = read_text(self._proc / "driver/nvidia/params") or ""
            remedy = _ADMIN_ONLY if "RmProfilingAdminOnly: 1" in parameters else _PROFILING
            raise SourceUnavailableError(f"DCGM: {error}", remedy) from error
        self._processes = RunProcesses(context)
        self._monitor: Monitor | None = None
        self._uuid_of: Mapping[str, str] = {}
        self._last_row_nano = 0
        self._backoff = Backoff(first_seconds=FIRST_RETRY_SECONDS, longest_seconds=LAST_RETRY_SECONDS)
        self._failure = ""

    def read(self, now: Instant) -> Iterable[Reading]:
        """Yield one row for each GPU with new figures; none while a run has a profiler."""
        names = (read_process_file(self._proc, pid, "comm") for pid in self._processes.run_of(now))
        if any(name is not None and name.rstrip("\n") in PROFILERS for name in names):
            self._release()
            return
        try:
            rows = self._rows(now)
        except DcgmError as error:
            self._release()
            self._backoff.note_failure(now.monotonic_seconds)
            self._failure = f"DCGM: {error}"
            raise SourceError(self._failure) from error
        for number, values in rows.items():
            yield from device_rows(self._uuid_of[number], values)

    def _rows(self, now: Instant) -> Mapping[str, Mapping[str, float]]:
        monitor = self._monitor or self._start(now)
        rows = {number: values for number, values in monitor.read_rows().items() if values and number in self._uuid_of}
        if rows:
            self._last_row_nano = now.monotonic_nano
            self._backoff.reset()
        elif now.monotonic_nano - self._last_row_nano > _SILENT_NANO:
            raise DcgmError("dcgmi dmon prints no values")
        return rows

    def _start(self, now: Instant) -> Monitor:
        if not self._backoff.is_due(now.monotonic_seconds):
            raise SourceError(self._failure)
        # A restarted host engine may number the GPUs otherwise.
        self._uuid_of = self._find_gpus()
        self._monitor = Monitor(self._dcgmi, list(self._uuid_of), self._find_fields(self._uuid_of))
        self._last_row_nano = now.monotonic_nano
        return self._monitor

    def _find_gpus(self) -> dict[str, str]:
        """Return the UUID of each GPU without GPM, by DCGM's number. Raises DcgmError."""
        numbers = parse_gpus(ask(self._dcgmi, "discovery", "--list"))
        found = {numbers[uuid]: uuid for uuid in self._uuids if uuid in numbers}
        if not found:
            raise DcgmError("the host engine does not know this node's GPUs")
        return found

    def _find_fields(self, gpus: Iterable[str]) -> list[int]:
        """Return the fields that all of the GPUs have: one that a GPU lacks would fail all. Raises DcgmError."""
        fields = set(COLUMNS)
        for number in gpus:
            fields &= parse_fields(ask(self._dcgmi, "profile", "--list", "--entity-id", number))
        if not fields:
            raise DcgmError("it has no profiling metrics of these GPUs")
        return sorted(fields)

    def _release(self) -> None:
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None

    def close(self) -> None:
        """End the child, and stop looking for processes."""
        self._release()
        self._processes.close()


def _has_gpm(nvml: Nvml, uuid: str) -> bool:
    try:
        return bool(nvml.ask("nvmlGpmQueryDeviceSupport", uuid)["isSupportedDevice"])
    except NvmlUnsupportedError:
        return False
