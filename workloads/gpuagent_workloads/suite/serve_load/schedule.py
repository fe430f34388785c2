"""The requests to send: their times, and the lengths of their prompts and answers."""

import csv
import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import DataError
from gpuagent_workloads.suite.serve_load import Config

_MOST_TOKENS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a prompt: parts of the same key begin alike in all prompts of a seed.

    `is_answer` says whether it stands for the answer of an earlier turn.
    """

    key: str
    tokens: int
    is_answer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A request to send.

    Attributes:
        at_seconds: after the load began, or for a further turn after the answer before; without meaning for the first
            one in a closed loop.
        blocks: the keys of its prompt's blocks in a recorded trace.
        parts: of its prompt; empty: it is all its own.
        turns: the further turns of its conversation.
    """

    at_seconds: float
    input_tokens: int
    output_tokens: int
    number: int
    blocks: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    turns: "tuple[Planned, ...]" = ()


def schedule(config: Config) -> Iterator[Planned]:
    """Yield requests without end, the same for the same seed.

    Raises:
        MisuseError: a distribution has another form.
        DataError: a file is missing or of another form.
    """
    if config.trace:
        # The requests of a trace, again and again.
        recorded = read_requests(Path(config.trace))
        times = [each.at_seconds / config.scale for each in recorded]
        span = (times[-1] - times[0]) * (1 + 1 / max(1, len(times) - 1)) or 1.0
        for number, each in enumerate(itertools.cycle(recorded)):
            turn, at = divmod(number, len(times))
            at_seconds = turn * span + times[at] - times[0]
            pieces, left = [], each.input_tokens
            for key in each.blocks:
                pieces.append(Part(key=f"block {key}", tokens=min(left, config.block)))
                left -= pieces[-1].tokens
            pieces.append(Part(key=str(number), tokens=left))
            yield replace(
                each, at_seconds=at_seconds, number=number, parts=tuple(part for part in pieces if part.tokens)
            )
    pauses = random.Random(f"{config.seed}/think")  # noqa: S311 - no secret, as for the following
    lengths = _lengths(config, random.Random(config.seed + 1))  # noqa: S311
    for number, at_seconds in enumerate(_arrivals(config, random.Random(config.seed))):  # noqa: S311
        turns: list[Planned] = []
        parts: tuple[Part, ...] = ()
        for turn in range(config.turns):
            input_tokens, output_tokens = next(lengths)
            shared = 0 if turn else round(config.shared_prefix * input_tokens)
            own = Part(key=f"{number}/{turn}", tokens=input_tokens - shared)
            parts += (*([Part(key="shared", tokens=shared)] if shared else []), own)
            pause_seconds = pauses.expovariate(1 / config.think) if config.think else 0.0
            turns.append(
                Planned(
                    at_seconds=pause_seconds if turn else at_seconds,
                    input_tokens=sum(part.tokens for part in parts),
                    output_tokens=output_tokens,
                    number=number,
                    parts=parts,
                )
            )
            parts += (Part(key=f"{number}/answer {turn}", tokens=output_tokens, is_answer=True),)
        yield replace(turns[0], turns=tuple(turns[1:]))


def _arrivals(config: Config, source: random.Random) -> Iterator[float]:
    """Yield times whose pauses are gamma-distributed; with a burstiness of 1 they are those of a Poisson process."""
    at_seconds = 0.0
    while True:
        yield at_seconds
        if config.rate:
            # The rate is that of all turns.
            pause_seconds = config.turns / config.rate
            at_seconds += source.gammavariate(config.burstiness, pause_seconds / config.burstiness)


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

    Raises MisuseError: the text is neither N, uniform:A:B nor lognormal:MEDIAN:SIGMA.
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

    Two forms are read: JSON lines with timestamp (ms), input_length, output_length and hash_ids (of the blocks of the
    prompt), as Mooncake published, and CSV with TIMESTAMP (a date), ContextTokens and GeneratedTokens, as Azure did.
    Raises DataError: the file is missing, empty or of another form.
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
    blocks = tuple(map(str, record.get("hash_ids") or ()))
    return Planned(
        at_seconds=at_seconds, input_tokens=input_tokens, output_tokens=output_tokens, number=number, blocks=blocks
    )
