"""Opening and reading sources."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar

from gpuagent.errors import SourceError
from gpuagent.sources.source import Reading, Source, SourceContext
from tests.support.nvml_replay import NvmlRecording
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


def replay(
    source_type: Callable[[SourceContext], S],
    recorded: str | dict[str, list[dict[str, Any]]] | NvmlRecording,
    **context: Any,
) -> tuple[S, NvmlRecording]:
    """Open a source on a recording, given as itself, as its name or as the outcomes of one GPU; return both."""
    match recorded:
        case str():
            recording = NvmlRecording.load(recorded)
        case dict():
            recording = NvmlRecording.of_one_gpu(recorded)
        case _:
            recording = recorded
    return source_type(SourceContext(open_nvml=recording.open, **context)), recording


class Runs:
    """Active runs: their ids, and the numbers of their supervisors."""

    def __init__(self, *supervisors: tuple[str, int], programs: Collection[int] = ()) -> None:
        self.supervisors: Sequence[tuple[str, int]] = supervisors
        self._programs = programs

    @property
    def is_busy(self) -> bool:
        return bool(self.supervisors)

    def programs(self) -> Collection[int]:
        return self._programs

    def processes(self) -> Sequence[tuple[str, int]]:
        return self.supervisors
