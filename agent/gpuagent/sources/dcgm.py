"""The use of a GPU's parts by DCGM, where there is no GPM: Volta to Ada. `dcgmi dmon -e 1002,1003,…` shows the same.

DCGM has the GPU's counters to itself before Hopper. While a run has a profiler that needs them (ncu, nsys), this source
releases them; torch's profiler traces activities, which needs none.

It is read by DCGM's command line: `dcgmi dmon` prints a row for each GPU at a fixed interval. The formats are those of
dcgmi's documentation and source (2.0 to 4.x), and of reports from V100, T4, A10 and A100. They have not been tried
against a host engine here.
"""

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence

from gpuagent.clock import Instant
from gpuagent.errors import SourceError, SourceUnavailableError
from gpuagent.sources.source import Lane, Reading, SourceContext
from gpuagent.sources.support.files import read_text
from gpuagent.sources.support.gpus import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, device_rows
from gpuagent.sources.support.nvml_api import Nvml, NvmlError, NvmlUnsupportedError, unavailable
from gpuagent.sources.support.processes import RunProcesses, read_process_file
from gpuagent_common.backoff import Backoff

# DCGM's number of each field (DCGM_FI_PROF_…) → the column, and the factor from DCGM's unit to the column's.
COLUMNS: Mapping[int, tuple[str, float]] = {
    1002: ("sm_active_percent", 100),
    1003: ("sm_occupancy_percent", 100),
    1004: ("tensor_active_percent", 100),
    1005: ("dram_active_percent", 100),
    1006: ("fp64_active_percent", 100),
    1007: ("fp32_active_percent", 100),
    1008: ("fp16_active_percent", 100),
    1009: ("pcie_send_bytes_per_second", 1),
    1010: ("pcie_receive_bytes_per_second", 1),
    1011: ("nvlink_send_bytes_per_second", 1),
    1012: ("nvlink_receive_bytes_per_second", 1),
}

# Where a GPU cannot count all fields at once, as T4 and V100, DCGM takes turns among them.
PERIOD_MILLIS = 1000

_TIMEOUT_SECONDS = 10.0
_CHUNK_BYTES = 64 * 1024
_LAST_LINES = 20


class DcgmError(Exception):
    """A command of DCGM that failed, in its own words."""


def parse_gpus(text: str) -> dict[str, str]:
    """Return DCGM's number of each GPU, by UUID, from the output of `dcgmi discovery -l`."""
    numbers: dict[str, str] = {}
    number = ""
    for line in text.splitlines():
        if found := re.match(r"\|\s*(\d+)\s*\|", line):
            number = found[1]
        if found := re.search(r"Device UUID:\s*(\S+)", line):
            numbers[found[1]] = number
    return numbers


def parse_fields(text: str) -> frozenset[int]:
    """Return the fields that a GPU has, from the output of `dcgmi profile --list`."""
    return frozenset(int(number) for number in re.findall(r"^\|[^|]+\|\s*(\d{1,9})\s*\|", text, re.MULTILINE))


def parse_row(line: str, fields: Sequence[int]) -> tuple[str, dict[str, float]] | None:
    """Return DCGM's number of a GPU and the columns with a value; None: the line is no GPU's.

    `fields` are those that `dcgmi dmon` prints, in that order.
    """
    words = line.split()
    if len(words) != 2 + len(fields) or words[0] != "GPU":
        return None
    _, number, *texts = words
    values: dict[str, float] = {}
    for field, text in zip(fields, texts, strict=True):
        if re.fullmatch(r"\d+(\.\d+)?", text):
            column, factor = COLUMNS[field]
            values[column] = float(text) * factor
    return number, values


def complaint(lines: Iterable[str]) -> str:
    """Return the last error that dcgmi printed, or otherwise its last line."""
    printed = [" ".join(line.split()) for line in lines if line.strip()]
    errors = [line for line in printed if line.lower().startswith("error")]
    return (errors or printed or ["it printed nothing"])[-1]


def ask(dcgmi: str, *arguments: str) -> str:
    """Return the output of dcgmi. Raises DcgmError if it failed, or did not end."""
    try:
        done = subprocess.run(
            [dcgmi, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DcgmError(f"it did not answer within {_TIMEOUT_SECONDS:.0f} s") from error
    except OSError as error:
        raise DcgmError(f"it cannot be started: {error.strerror}") from error
    if done.returncode:
        raise DcgmError(complaint(done.stdout.splitlines()))
    return done.stdout


class Monitor:
    """A running `dcgmi dmon`: a child of the agent, which outlives it at most until the next row is printed.

    Raises DcgmError: dcgmi cannot be started.
    """

    def __init__(self, dcgmi: str, gpus: Sequence[str], fields: Sequence[int]) -> None:
        self._fields = fields
        self._rest = b""
        self._printed: list[str] = []
        self._output, writing = os.pipe()
        os.set_blocking(self._output, False)
        try:
            # In a session of its own, so that Ctrl-C in a terminal is the agent's alone.
            self._process = subprocess.Popen(
                [dcgmi, *dmon_arguments(gpus, fields)],
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                start_new_session=True,
            )
        except OSError as error:
            os.close(self._output)
            raise DcgmError(f"it cannot be started: {error.strerror}") from error
        finally:
            os.close(writing)

    def read_rows(self) -> dict[str, dict[str, float]]:
        """Return the last row of each GPU, by DCGM's number, that was printed since the last call.

        Raises DcgmError: it has ended.
        """
        # Polled before the reading, so that its last lines are not missed.
        has_ended = self._process.poll() is not None
        rows: dict[str, dict[str, float]] = {}
        for line in self._read_lines():
            row = parse_row(line, self._fields)
            if row is None:
                self._printed = [*self._printed[-_LAST_LINES:], line]
            else:
                rows[row[0]] = row[1]
        if has_ended and not rows:
            raise DcgmError(f"dcgmi dmon has ended: {complaint(self._printed)}")
        return rows

    def _read_lines(self) -> list[str]:
        """Return the complete lines since the last call."""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._output, _CHUNK_BYTES):
                self._rest += chunk
        *lines, self._rest = self._rest.split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def close(self) -> None:
        """End it, which releases the GPU's counters."""
        self._process.kill()
        self._process.wait()
        os.close(self._output)


def dmon_arguments(gpus: Sequence[str], fields: Sequence[int]) -> list[str]:
    """Return the arguments with which `dcgmi` prints these fields of these GPUs once a second."""
    wanted = ",".join(map(str, fields))
    return ["dmon", "--field-id", wanted, "--entity-id", ",".join(gpus), "--delay", str(PERIOD_MILLIS)]


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
