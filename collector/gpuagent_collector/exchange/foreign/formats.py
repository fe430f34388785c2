"""The registry of formats, and the choice of the one that a file's content has."""

import csv
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gpuagent_collector.exchange.foreign import (
    aiperf,
    bench_serving,
    genai_perf,
    guidellm,
    mlperf,
    nccl_tests,
)
from gpuagent_collector.exchange.foreign.result import ForeignRun, ResultError
from gpuagent_common.errors import GpuAgentError

# Details of each request are most of such a file. Python needs several times its size.
MOST_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Format:
    """A format of results.

    Attributes:
        recognise: returns whether a file has it, of its parsed JSON or of its text; never fails.
        read: returns the runs of such a file; raises ResultError.
    """

    name: str
    recognise: Callable[[Any], bool]
    read: Callable[[Any], Sequence[ForeignRun]]


FORMATS: tuple[Format, ...] = (
    Format("aiperf", aiperf.recognise, aiperf.read),
    Format("aiperf-csv", aiperf.recognise_csv, aiperf.read_csv),
    Format("genai-perf", genai_perf.recognise, genai_perf.read),
    Format("guidellm", guidellm.recognise, guidellm.read),
    Format("vllm-bench", partial(bench_serving.recognise, bench_serving.VLLM), bench_serving.read_vllm),
    Format("sglang-bench", partial(bench_serving.recognise, bench_serving.SGLANG), bench_serving.read_sglang),
    Format("nccl-tests", nccl_tests.recognise, nccl_tests.read),
    Format("mlperf-training", mlperf.recognise_training, mlperf.read_training),
    Format("mlperf-inference", mlperf.recognise_inference, mlperf.read_inference),
)

NAMES = tuple(each.name for each in FORMATS)


def load(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        ResultError: it is no regular file, empty or too large, or cannot be read.
    """
    try:
        if not path.is_file():
            raise ResultError(f"{path} is no file")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ResultError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > MOST_BYTES:
        raise ResultError(f"{path} is larger than {MOST_BYTES >> 20} MiB; leave the details of requests out of it")
    if not content.strip():
        raise ResultError(f"{path} is empty")
    return content


def read_results(path: Path, content: bytes, name: str | None) -> Sequence[ForeignRun]:
    """Return the runs of a file, in the format of this name; None: in that which its content has.

    Raises:
        ResultError: the file is damaged or of no known format.
    """
    document = _parse(path, content)
    chosen = next((each for each in FORMATS if (each.name == name if name else each.recognise(document))), None)
    if chosen is None:
        raise ResultError(f"{path} is of no known format; it can be {', '.join(NAMES)}, or with --run a log")
    if not chosen.recognise(document):
        raise ResultError(f"{path} is no result of {chosen.name}")
    try:
        runs = chosen.read(document)
    except ResultError as error:
        raise ResultError(f"{path}: {error}") from error
    except GpuAgentError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, csv.Error) as error:
        raise ResultError(f"{path} is damaged or of an unknown version of {chosen.name}: {error!r:.80}") from error
    if not runs:
        raise ResultError(f"{path} has no results")
    return runs


def _parse(path: Path, content: bytes) -> Any:
    """Return the JSON of a file, of JSON lines as a list, and of another file its text."""
    try:
        written = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ResultError(f"{path} is no text: byte {error.start} is no UTF-8") from error
    if not written.lstrip().startswith("{"):
        return written
    try:
        try:
            return json.loads(written, parse_int=_integer)
        except json.JSONDecodeError as error:
            if not error.msg.startswith("Extra data"):
                raise
            return [json.loads(line, parse_int=_integer) for line in written.split("\n") if line.strip()]
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{path} is damaged or truncated JSON: {error!s:.80}") from error


def _integer(written: str) -> int | float:
    # Python refuses integers of thousands of digits, and DOUBLE cannot hold them.
    return int(written) if len(written) < 300 else math.inf
