"""What a workload is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

from gpuagent_workloads.report import Reporter

ConfigT = TypeVar("ConfigT")

Kind = Literal["training", "measurement", "interference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload(Generic[ConfigT]):
    """One workload: what `list` says of it, and how it is run."""

    # As on the command line, with dashes.
    name: str
    # One sentence.
    summary: str
    # training: it trains a model and has a throughput; measurement: it measures a part of the platform; interference:
    # it runs beside what is measured.
    kind: Kind
    # Where it was used before, and for what.
    study: str
    # What data it reads, and where that comes from.
    data: str
    # How much memory it wants, in words.
    memory: str
    # A frozen dataclass of parameters (`parameters.parameter`) that checks itself in `__post_init__`.
    config: type[ConfigT]
    # Runs it to its end. Raises WorkloadError for what a user can mend. It never uses the network.
    run: Callable[[ConfigT, Reporter], None]
    # Fetches its data into a directory, from the given mirrors if there are any. None: there is nothing to fetch.
    prepare: Callable[[Path, Sequence[str]], None] | None = None
    # The name of what `prepare` fetches, for its folder in the cache: workloads with the same data share it. None:
    # the workload's name.
    dataset: str | None = None
