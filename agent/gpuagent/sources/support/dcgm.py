"""DCGM's profiling metrics through its command line: `dcgmi dmon` prints a row for each GPU, as often as it is told to.

What dcgmi prints was taken from its documentation and source (2.0 to 4.x), and from what others report of V100, T4, A10
and A100. It has not been tried against a host engine here.
"""

import contextlib
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence

# DCGM's number of each field (DCGM_FI_PROF_…) → the column, and what DCGM's unit is in the column's.
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
    """DCGM does not do what was asked of it; its own words."""


def parse_gpus(text: str) -> dict[str, str]:
    """Return DCGM's number of each GPU, by UUID, of what `dcgmi discovery -l` printed."""
    numbers: dict[str, str] = {}
    number = ""
    for line in text.splitlines():
        if found := re.match(r"\|\s*(\d+)\s*\|", line):
            number = found[1]
        if found := re.search(r"Device UUID:\s*(\S+)", line):
            numbers[found[1]] = number
    return numbers


def parse_fields(text: str) -> frozenset[int]:
    """Return the fields that a GPU has, of what `dcgmi profile --list` printed."""
    return frozenset(int(number) for number in re.findall(r"^\|[^|]+\|\s*(\d{1,9})\s*\|", text, re.MULTILINE))


def parse_row(line: str, fields: Sequence[int]) -> tuple[str, dict[str, float]] | None:
    """Return DCGM's number of a GPU and the columns that it has a value for; None: the line is no GPU's.

    `fields` are those that `dcgmi dmon` was asked for, in that order.
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
    """Return what dcgmi complained of, or else the last thing that it said."""
    said = [" ".join(line.split()) for line in lines if line.strip()]
    errors = [line for line in said if line.lower().startswith("error")]
    return (errors or said or ["it said nothing"])[-1]


def ask(dcgmi: str, *arguments: str) -> str:
    """Return what dcgmi prints.

    Raises:
        DcgmError: it failed, or did not end.
    """
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
    """A running `dcgmi dmon`: a child of the agent, which outlives it at most until it prints the next row.

    Raises:
        DcgmError: dcgmi cannot be started.
    """

    def __init__(self, dcgmi: str, gpus: Sequence[str], fields: Sequence[int]) -> None:
        self._fields = fields
        self._rest = b""
        self._said: list[str] = []
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

    def rows(self) -> dict[str, dict[str, float]]:
        """Return the last row of each GPU, by DCGM's number, of those that were printed since the last call.

        Raises:
            DcgmError: it has ended.
        """
        # Asked before the reading, so that nothing it said last is missed.
        has_ended = self._process.poll() is not None
        rows: dict[str, dict[str, float]] = {}
        for line in self._lines():
            row = parse_row(line, self._fields)
            if row is None:
                self._said = [*self._said[-_LAST_LINES:], line]
            else:
                rows[row[0]] = row[1]
        if has_ended and not rows:
            raise DcgmError(f"dcgmi dmon has ended: {complaint(self._said)}")
        return rows

    def _lines(self) -> list[str]:
        """Return the whole lines that are there."""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._output, _CHUNK_BYTES):
                self._rest += chunk
        *lines, self._rest = self._rest.split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def close(self) -> None:
        """End it, which lets go of the GPU's counters."""
        self._process.kill()
        self._process.wait()
        os.close(self._output)


def dmon_arguments(gpus: Sequence[str], fields: Sequence[int]) -> list[str]:
    """Return what `dcgmi` is to be told to print these fields of these GPUs once a second."""
    wanted = ",".join(map(str, fields))
    return ["dmon", "--field-id", wanted, "--entity-id", ",".join(gpus), "--delay", str(PERIOD_MILLIS)]
