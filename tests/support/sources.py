"""Opening and reading sources."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from gpuagent.errors import SourceError
from gpuagent.sources.source import Reading, Source, SourceContext
from tests.support.trees import instant

S = TypeVar("S", bound=Source)


class OpenSource(Protocol):
    """Opens a source with the given parts of its context; `proc` is psutil's as well."""

    def __call__(self, source_type: Callable[[SourceContext], S], /, **context: Any) -> S: ...


def read_all(source: Source, seconds: float) -> tuple[list[Reading], str | None]:
    """Return the readings, and the error that followed them."""
    readings: list[Reading] = []
    try:
        readings.extend(source.read(instant(seconds)))
    except SourceError as error:
        return readings, str(error)
    return readings, None


class Runs:
    """Active runs: their ids, and the numbers of their supervisors."""

    def __init__(self, *supervisors: tuple[str, int]) -> None:
        self.supervisors: Sequence[tuple[str, int]] = supervisors

    def processes(self) -> Sequence[tuple[str, int]]:
        return self.supervisors
