"""What the parts of a GPU do, by DCGM, where there is no GPM: Volta to Ada. `dcgmi dmon -e 1002,1003,…` shows the same.

DCGM has the GPU's counters to itself before Hopper. While a run has a profiler that wants them (ncu, nsys), this source
lets go of them; torch's profiler traces activities, which needs none.
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gpuagent.clock import Instant
from gpuagent.errors import SourceError, SourceUnavailableError
from gpuagent.sources.source import Lane, Reading, SourceContext
from gpuagent.sources.support.backoff import Backoff
from gpuagent.sources.support.dcgm import COLUMNS, DcgmError, Monitor, ask, dmon_arguments, parse_fields, parse_gpus
from gpuagent.sources.support.files import read_text
from gpuagent.sources.support.nvml_api import Nvml, NvmlError, NvmlUnsupportedError, OpenNvml, unavailable
from gpuagent.sources.support.processes import RunProcesses, read_process_file
from gpuagent_common.keys import key

# Programs that want the counters for themselves.
PROFILERS = frozenset({"ncu", "nsys"})

# Ten rows missed: then dcgmi hangs.
_SILENT_NANO = 10_000_000_000

_INSTALL = "install NVIDIA's DCGM (datacenter-gpu-manager) and start its host engine: systemctl start nvidia-dcgm"
_START = "start DCGM's host engine: systemctl start nvidia-dcgm, or nv-hostengine as root"
_ADMIN_ONLY = (
    "the driver lets only root read performance counters (RmProfilingAdminOnly): run nv-hostengine as root, "
    "or have an administrator allow it with NVreg_RestrictProfilingToAdminUsers=0"
)
_PROFILING = "`dcgmi modules -l` tells whether DCGM's profiling module is loaded, and nv-hostengine must run as root"


class Dcgm:
    """Activity of the SMs, pipes, memory and links of each GPU without GPM, over the second before.

    On the slow lane, since finding the host engine again after it was gone takes seconds. Otherwise a reading takes
    what has been printed; what the child and the host engine cost is not in the cost of this source.
    """

    name = "dcgm"
    lane = Lane.SLOW
    # dcgmi prints once a second, without a time stamp: a row is dated at most half a second late.
    max_rate_hz = 2.0

    def __init__(self, context: SourceContext) -> None:
        self._uuids = _without_gpm(context.open_nvml)
        self._dcgmi = _find_dcgmi()
        self._proc = context.proc
        self._try()
        self._processes = RunProcesses(context)
        self._monitor: Monitor | None = None
        self._uuid_of: Mapping[str, str] = {}
        self._last_row_nano = 0
        self._backoff = Backoff()
        self._failure = ""

    def _try(self) -> None:
        """Have one row printed.

        Raises:
            SourceUnavailableError: there is no host engine, or it may not read the counters.
        """
        try:
            gpus = self._find_gpus()
        except DcgmError as error:
            raise SourceUnavailableError(f"DCGM: {error}", _START) from error
        try:
            ask(self._dcgmi, *dmon_arguments(list(gpus), self._find_fields(gpus)), "--count", "1")
        except DcgmError as error:
            raise SourceUnavailableError(f"DCGM: {error}", _counters_remedy(self._proc)) from error

    def read(self, now: Instant) -> Iterable[Reading]:
        """Yield one row for each GPU of which there is news; none while a run has a profiler."""
        if self._has_profiler(now):
            self._let_go()
            return
        try:
            rows = self._rows(now)
        except DcgmError as error:
            self._let_go()
            self._backoff.note_failure(now)
            self._failure = f"DCGM: {error}"
            raise SourceError(self._failure) from error
        for number, values in rows.items():
            device_id = key(self._uuid_of[number])
            yield Reading(table="gpu_samples", key=device_id, values={"device_id": device_id, **values})

    def _has_profiler(self, now: Instant) -> bool:
        names = (read_process_file(self._proc, pid, "comm") for pid in self._processes.run_of(now))
        return any(name is not None and name.rstrip("\n") in PROFILERS for name in names)

    def _rows(self, now: Instant) -> Mapping[str, Mapping[str, float]]:
        monitor = self._monitor or self._start(now)
        rows = {number: values for number, values in monitor.rows().items() if values and number in self._uuid_of}
        if rows:
            self._last_row_nano = now.monotonic_nano
            self._backoff.note_success()
        elif now.monotonic_nano - self._last_row_nano > _SILENT_NANO:
            raise DcgmError("dcgmi dmon prints no values")
        return rows

    def _start(self, now: Instant) -> Monitor:
        if not self._backoff.is_due(now):
            raise SourceError(self._failure)
        # A host engine that was started anew may number the GPUs otherwise.
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

    def _let_go(self) -> None:
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None

    def close(self) -> None:
        """End the child, and stop looking for processes."""
        self._let_go()
        self._processes.close()


def _without_gpm(open_nvml: OpenNvml) -> Sequence[str]:
    """Return the UUIDs of the GPUs that have no GPM.

    Raises:
        SourceUnavailableError: there are none.
    """
    try:
        nvml = open_nvml()
    except NvmlError as error:
        raise unavailable(error) from error
    try:
        uuids = [uuid for uuid in nvml.devices() if not _has_gpm(nvml, uuid)]
    except NvmlError as error:
        raise unavailable(error) from error
    finally:
        nvml.close()
    if not uuids:
        raise SourceUnavailableError("there is no GPU that needs it: GPM tells the same without DCGM")
    return uuids


def _has_gpm(nvml: Nvml, uuid: str) -> bool:
    try:
        return bool(nvml.ask("nvmlGpmQueryDeviceSupport", uuid)["isSupportedDevice"])
    except NvmlUnsupportedError:
        return False


def _find_dcgmi() -> str:
    dcgmi = shutil.which("dcgmi")
    if dcgmi is None:
        raise SourceUnavailableError("these GPUs have no GPM, and there is no DCGM (no dcgmi on the PATH)", _INSTALL)
    return dcgmi


def _counters_remedy(proc: Path) -> str:
    parameters = read_text(proc / "driver/nvidia/params") or ""
    return _ADMIN_ONLY if "RmProfilingAdminOnly: 1" in parameters else _PROFILING
