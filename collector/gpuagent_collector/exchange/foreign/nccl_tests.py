"""Standard output of nccl-tests: the devices, a line for each size, and the average bus bandwidth.

The columns are those of src/util.cu and src/common.cu of nccl-tests 2.13 to 2.17. Its times are microseconds, its
bandwidths 10^9 bytes a second. The output has no time of day. Launchers put the rank before each line.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from gpuagent_collector.exchange.foreign.result import (
    COLLECTIVES,
    Figures,
    ForeignRun,
    Node,
    ResultError,
    lines,
    number,
    whole,
)

# Names of the results: those of the workload `collectives`. {} are the operation and the size in bytes.
BEST = "{0}_bus_bytes_per_second"
AVERAGE = "{0}_average_bus_bytes_per_second"

# Of each column of a size: the name, the unit and the column's unit in it.
_COLUMNS = {
    "time": ("{0}_{1}_bytes_seconds", "s", 1e-6),
    "algbw": ("{0}_{1}_bytes_algorithm_bytes_per_second", "bytes/s", 1e9),
    "busbw": ("{0}_{1}_bytes_bus_bytes_per_second", "bytes/s", 1e9),
}

# Operations that the workload `collectives` spells otherwise.
_OPERATIONS = {"alltoall": "all_to_all", "sendrecv": "send_recv"}

_UNITS = re.compile(r"^#\s+\(B\)\s+\(elements\)\s+\(us\)\s+\(GB/s\)\s+\(GB/s\)")
_VERSION = re.compile(r"# nccl-tests version (\S+)(?:.* nccl-library=(\d+))?")
_PROGRAM = re.compile(r"(?:# Collective test starting: |(?:^|/|\s))(\w+)_perf(?:_mpi)?\b")
# `[1,0]<stdout>:` and `[prterun-host-1@1,0]<stdout>: ` of Open MPI, with a time before it or not, `[0] ` of Intel MPI
# and MPICH, and `0: ` of `srun -l` and MPICH.
_TAG = re.compile(r"(?:[^\[\]<>]{0,40})?\[[^\[\]<>]{1,100},\d{1,7}\]<std(?:out|err)>: ?|\[\d{1,7}\] ?|\d{1,7}: ?")

_SETTINGS = re.compile(r"^# nThread (?P<threads>\d+) .*\biters: (?P<iterations>\d+) agg iters: (?P<aggregated>\d+)")
_GRAPH = re.compile(r"^# nThread .* graph: (\d+)")
_DEVICE = re.compile(r"#\s+Rank\s+\d+ (?:Group\s+\d+ )?Pid\s+\d+ on\s+(\S+)\s+device\s+\d+ \[[0-9a-fx:.]+\] (.+)")
_AVERAGE = re.compile(r"# Avg bus bandwidth\s*:\s*([\d.e+-]+)")
_WRONG = re.compile(r"# Out of bounds values\s*:\s*(\d+) (\w+)")

# Size, count, type, redop, root; then time, algbw, busbw and wrong values out of place, and the same in place, of which
# only the wrong values are read.
_MEASURED = re.compile(r"\s*\d+\s+\d+\s+\w+\s+\w+\s+-?\d+\s")
_POINT = re.compile(
    r"\s*(?P<size>\d+)\s+\d+\s+(?P<type>\w+)\s+(?P<redop>\w+)\s+-?\d+"
    r"\s+(?P<time>\S+)\s+(?P<algbw>\S+)\s+(?P<busbw>\S+)\s+(?P<wrong>\S+)"
    r"(?:\s+\S+\s+\S+\s+\S+\s+(?P<wrong_in_place>\S+))?.*"
)


def recognise(document: Any) -> bool:
    """Return whether it is an output of nccl-tests."""
    return isinstance(document, str) and "# Using devices" in document and "busbw" in document


def _without_tags(found: Sequence[str]) -> list[str]:
    """Return the lines without a launcher's tags, if the line of the devices has one."""
    devices = next((line for line in found if "# Using devices" in line), "")
    if devices.startswith("#"):
        return list(found)
    matched = [_TAG.match(line) for line in found]
    return [line[match.end() :] if match else line for line, match in zip(found, matched, strict=True)]


def read(document: str) -> Sequence[ForeignRun]:
    """Return the run of an output, whose best bus bandwidth is the highest out of place. Raises ResultError."""
    # Without the end of its line, a number may be cut off.
    found = _without_tags(list(lines(document[: document.rfind("\n") + 1])))
    average = _first(_AVERAGE, found)
    points = [_read_point(line) for line in found if _MEASURED.match(line)]
    if average is None or not points:
        raise ResultError("truncated: it has no average bus bandwidth" if points else "it has no sizes")
    if not any(_UNITS.search(line) for line in found):
        raise ResultError("its columns are not in (B), (us) and (GB/s)")
    sizes = Counter(int(match["size"]) for match in points)
    for size, times in sizes.items():
        if times > 1:
            raise ResultError(f"it measures {size} bytes {times} times; a file must have one run of one operation")
    program = _first(_PROGRAM, found)
    name = _OPERATIONS.get(program[1], program[1]) if program else "unknown"
    figures = Figures()
    for match in points:
        size = int(match["size"])
        for column, (title, unit, scale) in _COLUMNS.items():
            figures.add(title.format(name, size), _scaled(match[column], column, scale), unit, measured=True)
    rates = [rate for match in points if (rate := _scaled(match["busbw"], "busbw", 1e9)) is not None]
    figures.add(BEST.format(name), max(rates, default=None), "bytes/s", measured=True)
    figures.add(AVERAGE.format(name), _scaled(average[1], "the average", 1e9), "bytes/s", measured=True)
    nodes = _nodes(found)
    figures.add("ranks", sum(len(node.gpus) for node in nodes) or None)
    version = _first(_VERSION, found)
    if version and version[2]:
        # 22807 is 2.28.7. Up to 2.8 the code had a digit less: 2708 is 2.7.8.
        major, rest = divmod(int(version[2]), 1_000 if len(version[2]) < 5 else 10_000)
        figures.add("nccl_version", f"{major}.{rest // 100}.{rest % 100}")
    return [
        ForeignRun(
            program="nccl-tests",
            version=version[1] if version else None,
            workload=COLLECTIVES,
            parameters={"collective": name if program else None, **_parameters(points, sorted(sizes), found)},
            figures=figures.found,
            nodes=nodes,
            reason=_find_failure(points, found),
        )
    ]


def _first(pattern: re.Pattern[str], found: Sequence[str]) -> re.Match[str] | None:
    return next((match for line in found if (match := pattern.search(line))), None)


def _read_point(line: str) -> re.Match[str]:
    """Return the columns of a size, without which the average would be of other sizes. Raises ResultError."""
    match = _POINT.fullmatch(line)
    if match is None:
        raise ResultError(f"the line of a size lacks columns: {line.strip()!r:.60}")
    return match


def _find_failure(points: Sequence[re.Match[str]], found: Sequence[str]) -> str | None:
    """Return how many values are wrong, by the sum at the end or by the sizes; None: all are right."""
    stated = _first(_WRONG, found)
    if stated and stated[2] != "OK":
        return f"{stated[1]} wrong values"
    # Before 2.13 the column had the largest error.
    if not any("#wrong" in line for line in found):
        return None
    counts = [match[column] for match in points for column in ("wrong", "wrong_in_place")]
    wrong = sum(whole(float(count), "#wrong") or 0 for count in counts if count not in (None, "N/A"))
    return f"{wrong} wrong values" if wrong else None


def _scaled(written: str, name: str, scale: float) -> float | None:
    try:
        value = number(float(written), name)
    except ValueError:
        raise ResultError(f"{name} is {written!r:.40}, not a number from 0 up") from None
    return None if value is None else value * scale


def _nodes(found: Sequence[str]) -> list[Node]:
    gpus: dict[str, list[str]] = {}
    for line in found:
        if match := _DEVICE.match(line):
            gpus.setdefault(match[1], []).append(match[2].strip())
    return [Node(hostname=hostname, gpus=tuple(names)) for hostname, names in gpus.items()]


def _parameters(points: Sequence[re.Match[str]], sizes: Sequence[int], found: Sequence[str]) -> dict[str, Any]:
    graph, settings = _first(_GRAPH, found), _first(_SETTINGS, found)
    return {
        "dtype": points[0]["type"],
        "operation": None if points[0]["redop"] == "none" else points[0]["redop"],
        "min_bytes": sizes[0],
        "max_bytes": sizes[-1],
        "sizes": len(sizes),
        **({"graph": int(graph[1])} if graph else {}),
        **({name: int(value) for name, value in settings.groupdict().items()} if settings else {}),
    }
