"""The requests to send: their times, and the lengths of their prompts and answers."""

import csv
import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import DataError
from gpuagent_workloads.suite.serve_load import Config

_MOST_TOKENS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A request to send, `at_seconds` after the load began; in a closed loop the time has no meaning."""

    at_seconds: float
    input_tokens: int
    output_tokens: int
    number: int


def schedule(config: Config) -> Iterator[Planned]:
    """Yield requests without end, the same for the same seed.

    Raises:
        MisuseError: a distribution has another form.
        DataError: a file is missing or of another form.
    """
    source = random.Random(config.seed)  # noqa: S311 - no secret
    recorded = read_requests(Path(config.trace)) if config.trace else None
    if recorded:
        times: Iterator[float] = _repeated([each.at_seconds / config.scale for each in recorded])
        lengths: Iterator[tuple[int, int]] = itertools.cycle(
            (each.input_tokens, each.output_tokens) for each in recorded
        )
    else:
        times = _arrivals(config, source)
        lengths = _lengths(config, random.Random(config.seed + 1))  # noqa: S311
    for number, (at_seconds, (input_tokens, output_tokens)) in enumerate(zip(times, lengths, strict=False)):
        yield Planned(at_seconds=at_seconds, input_tokens=input_tokens, output_tokens=output_tokens, number=number)


def _arrivals(config: Config, source: random.Random) -> Iterator[float]:
    """Yield times whose pauses are gamma-distributed; with a burstiness of 1 they are those of a Poisson process."""
    at_seconds = 0.0
    while True:
        yield at_seconds
        if config.rate:
            at_seconds += source.gammavariate(config.burstiness, 1 / (config.rate * config.burstiness))


def _repeated(times: list[float]) -> Iterator[float]:
    """Yield the times of a trace from 0 on, and again after its end."""
    span = (times[-1] - times[0]) * (1 + 1 / max(1, len(times) - 1)) or 1.0
    for turn in itertools.count():
        yield from (turn * span + at_seconds - times[0] for at_seconds in times)


def _lengths(config: Config, source: random.Random) -> Iterator[tuple[int, int]]:
    if config.lengths:
        recorded = read_requests(Path(config.lengths))
        while True:
            drawn = source.choice(recorded)
            yield drawn.input_tokens, drawn.output_tokens
    draw_input, draw_output = distribution(config.input, "--input"), distribution(config.output, "--output")
    while True:
        yield draw_input(source), draw_output(source)


def distribution(text: str, option: str) -> Callable[[random.Random], int]:
    """Return a function that draws a number of tokens, at least 1.

    Raises:
        MisuseError: the text is neither N, uniform:A:B nor lognormal:MEDIAN:SIGMA.
    """
    kind, *words = text.split(":")
    try:
        if not words:
            fixed = _tokens(kind)
            return lambda _source: fixed
        first, second = words
        if kind == "uniform":
            low, high = _tokens(first), _tokens(second)
            if low <= high:
                return lambda source: source.randint(low, high)
        if kind == "lognormal" and 0 <= float(second) <= 10:
            median, sigma = _tokens(first), float(second)
            return lambda source: min(_MOST_TOKENS, max(1, round(median * source.lognormvariate(0, sigma))))
    except ValueError:
        pass
    raise MisuseError(f"{option} takes N, uniform:A:B or lognormal:MEDIAN:SIGMA, not {text!r}")


def _tokens(text: str) -> int:
    number = int(text)
    if not 1 <= number <= _MOST_TOKENS:
        raise ValueError(text)
    return number


def read_requests(path: Path) -> list[Planned]:
    """Return the requests of a recorded trace, in the order of their times.

    Two forms are read: JSON lines with timestamp (ms), input_length and output_length, as Mooncake published, and CSV
    with TIMESTAMP (a date), ContextTokens and GeneratedTokens, as Azure did.

    Raises:
        DataError: the file is missing, empty or of another form.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            records = csv.DictReader(file) if path.suffix.lower() == ".csv" else (json.loads(line) for line in file)
            found = [_request(record, number) for number, record in enumerate(records)]
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is no trace ({error!r:.60}): it needs JSON lines with timestamp, input_length and output_length"
        ) from error
    if not found:
        raise DataError(f"{path} has no requests")
    return sorted(found, key=lambda each: each.at_seconds)


def _request(record: dict[str, Any], number: int) -> Planned:
    if "ContextTokens" in record:
        # Azure writes seven digits of a second; Python reads six.
        moment, _, fraction = record["TIMESTAMP"].partition(".")
        at_seconds = datetime.fromisoformat(f"{moment}+00:00").timestamp() + float(f"0.{fraction[:9] or 0}")
        tokens = record["ContextTokens"], record["GeneratedTokens"]
    else:
        at_seconds = float(record.get("timestamp", 0)) / 1000
        tokens = record["input_length"], record["output_length"]
    input_tokens, output_tokens = (max(1, int(count)) for count in tokens)
    return Planned(at_seconds=at_seconds, input_tokens=input_tokens, output_tokens=output_tokens, number=number)
