"""The description of a workload: what `list` shows of it, and how it is run."""

import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

from gpuagent_workloads.report import Reporter

ConfigT = TypeVar("ConfigT")

Kind = Literal["training", "measurement", "interference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload(Generic[ConfigT]):
    """One workload."""

    # As on the command line, with dashes.
    name: str
    # One sentence.
    summary: str
    # training: it trains a model and has a throughput; measurement: it measures a part of the platform; interference:
    # it runs beside the measured workload.
    kind: Kind
    # The study that used it, and its purpose there.
    study: str
    # Its data and their origin.
    data: str
    # Its demand for memory, in words.
    memory: str
    # A frozen dataclass of parameters (`parameters.parameter`) that checks itself in `__post_init__`.
    config: type[ConfigT]
    # `module:function` of the program, called with the Config and a Reporter. A name, so that listing workloads does
    # not import torch, which takes seconds.
    entry: str
    # The phase that begins before the entry's module is imported.
    first_phase: str = "prepare"
    # `module:function` that fetches its data, called with a directory and mirrors. None: there is nothing to fetch.
    preparation: str | None = None
    # The name of the fetched data, for its folder in the cache, which workloads with the same data share. None: the
    # workload's name.
    dataset: str | None = None

    def run(self, config: ConfigT, reporter: Reporter) -> None:
        """Run it to its end, without the network.

        Raises:
            MisuseError: a parameter does not fit the machine, the data or another parameter.
            DataError: the data is missing or damaged.
            NonFiniteError: a figure is NaN or infinite.
            WorkloadError: something else failed that a user can fix.
        """
        reporter.phase(self.first_phase)
        pkgutil.resolve_name(self.entry)(config, reporter)

    def prepare(self, directory: Path, mirrors: Sequence[str]) -> None:
        """Fetch its data into a directory, from the given mirrors or, without any, from the authors'.

        Raises:
            MisuseError: a mirror is not an http or https URL.
            DataError: no mirror has the data intact, or the disk is full.
        """
        if self.preparation:
            pkgutil.resolve_name(self.preparation)(directory, mirrors)
