"""DCGM's profiling metrics through its command line: `dcgmi dmon` prints a row for each GPU at a fixed interval.

The formats are those of dcgmi's documentation and source (2.0 to 4.x), and of reports from V100, T4, A10 and A100. They
have not been tried against a host engine here.
"""

import contextlib
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence

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

    Raises:
        DcgmError: dcgmi cannot be started.
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

        Raises:
            DcgmError: it has ended.
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
