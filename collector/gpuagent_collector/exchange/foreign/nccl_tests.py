"""Standard output of nccl-tests: the devices, a line for each size, and the average bus bandwidth.

The columns are those of src/util.cu and src/common.cu of nccl-tests 2.13 to 2.17. Its times are microseconds, its
bandwidths 10^9 bytes a second. The output has no time of day.
"""

import re
from collections.abc import Sequence
from typing import Any

from gpuagent_collector.exchange.foreign.result import COLLECTIVES, Figures, ForeignRun, Node, ResultError, lines

# Names of the results: the one place to change them. {} are the operation and the size in bytes.
BEST = "{0}_bus_bytes_per_second"
AVERAGE = "{0}_average_bus_bytes_per_second"
POINTS = {"time": "{0}_{1}_seconds", "algbw": "{0}_{1}_bytes_per_second", "busbw": "{0}_{1}_bus_bytes_per_second"}

_UNITS = {"time": ("s", 1e-6), "algbw": ("bytes/s", 1e9), "busbw": ("bytes/s", 1e9)}

_VERSION = re.compile(r"# nccl-tests version (\S+)(?:.* nccl-library=(\d+))?")
_PROGRAM = re.compile(r"(?:# Collective test starting: |(?:^|/|\s))(\w+)_perf(?:_mpi)?\b")
_SETTINGS = re.compile(r"#.* warmup iters: (\d+) iters: (\d+) .*graph: (\d+)")
_DEVICE = re.compile(r"#\s+Rank\s+\d+ (?:Group\s+\d+ )?Pid\s+\d+ on\s+(\S+)\s+device\s+\d+ \[[0-9a-fx:.]+\] (.+)")
_AVERAGE = re.compile(r"# Avg bus bandwidth\s*:\s*([\d.e+-]+)[^\n]*\n")
_WRONG = re.compile(r"# Out of bounds values\s*:\s*(\d+) (\w+)")

# size, count, type, redop, root; then time, algbw, busbw and wrong values, out of place and in place.
_POINT = re.compile(r"\s*(\d+)\s+\d+\s+(\w+)\s+(\w+)\s+(-?\d+)\s+([\d.e+]+)\s+([\d.e+]+)\s+([\d.e+]+)\s+(\S+)(.*)")


def recognise(document: Any) -> bool:
    """Return whether it is such an output."""
    return isinstance(document, str) and "# Using devices" in document and "busbw" in document


def read(document: str) -> Sequence[ForeignRun]:
    """Return the run of an output; its throughput is the highest bus bandwidth, out of place. Raises ResultError."""
    found = [line.rstrip("\r") for line in lines(document)]
    # Without the end of its line, the number may be cut off.
    average = _AVERAGE.search(document)
    points = [match for line in found if (match := _POINT.fullmatch(line))]
    if average is None or not points:
        raise ResultError("truncated: it has no average bus bandwidth" if points else "it has no sizes")
    program = _first(_PROGRAM, found)
    name = program[1] if program else "unknown"
    figures = Figures()
    for match in points:
        _, *measured, _, _ = match.group(1, 5, 6, 7, 8, 9)
        for (column, (unit, scale)), value in zip(_UNITS.items(), measured, strict=True):
            figures.add(POINTS[column].format(name, match[1]), float(value) * scale, unit, measured=True)
    best = max(float(match[7]) for match in points) * 1e9
    figures.add("throughput", best, "bytes/s", measured=True)
    figures.add(BEST.format(name), best, "bytes/s", measured=True)
    figures.add(AVERAGE.format(name), float(average[1]) * 1e9, "bytes/s", measured=True)
    nodes = _nodes(found)
    figures.add("ranks", sum(len(node.gpus) for node in nodes) or None)
    version, wrong = _first(_VERSION, found), _first(_WRONG, found)
    figures.add("nccl_version", version[2] if version else None)
    return [
        ForeignRun(
            program="nccl-tests",
            version=version[1] if version else None,
            workload=COLLECTIVES,
            parameters={"collective": name if program else None, **_parameters(points, found)},
            figures=figures.found,
            nodes=nodes,
            reason=f"{wrong[1]} wrong values" if wrong and wrong[2] != "OK" else None,
        )
    ]


def _first(pattern: re.Pattern[str], found: Sequence[str]) -> re.Match[str] | None:
    return next((match for line in found if (match := pattern.search(line))), None)


def _nodes(found: Sequence[str]) -> list[Node]:
    gpus: dict[str, list[str]] = {}
    for line in found:
        if match := _DEVICE.match(line):
            gpus.setdefault(match[1], []).append(match[2].strip())
    return [Node(hostname=hostname, gpus=tuple(names)) for hostname, names in gpus.items()]


def _parameters(points: Sequence[re.Match[str]], found: Sequence[str]) -> dict[str, Any]:
    sizes = [int(match[1]) for match in points]
    settings = _first(_SETTINGS, found)
    return {
        "dtype": points[0][2],
        "operation": None if points[0][3] == "none" else points[0][3],
        "min_bytes": min(sizes),
        "max_bytes": max(sizes),
        "sizes": len(sizes),
        **({"graph": int(settings[3])} if settings else {}),
    }
