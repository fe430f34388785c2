"""Readers of every GPU, again and again, while some may be lost."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuagent.clock import Instant
from gpuagent.errors import SourceError, SourceUnavailableError
from gpuagent.sources.source import Computed, Reading, SourceContext, Value
from gpuagent.sources.support.nvml_api import (
    Nvml,
    NvmlError,
    NvmlLostError,
    NvmlUnsupportedError,
    OpenNvml,
    unavailable,
)
from gpuagent.sources.support.nvml_calls import Call
from gpuagent_common.backoff import Backoff
from gpuagent_common.keys import key

# A driver that is asked more often recovers no sooner.
FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 60.0

ReadGpu = Callable[[Nvml, str, Instant], Iterable[Reading]]
ListUuids = Callable[[Nvml], Sequence[str]]


def whole_gpus(nvml: Nvml) -> Sequence[str]:
    """Return the UUIDs of the GPUs, divided or not."""
    return nvml.devices()


def parts(nvml: Nvml) -> Sequence[str]:
    """Return the UUIDs of what a program can be given: GPUs, or the MIG instances of a divided one."""
    return [part for gpu in nvml.devices() for part in nvml.instances(gpu) or (gpu,)]


def gpus_and_instances(nvml: Nvml) -> Sequence[str]:
    """Return the UUIDs of the GPUs, each followed by those of its MIG instances."""
    return [uuid for gpu in nvml.devices() for uuid in (gpu, *nvml.instances(gpu))]


def device_rows(uuid: str, values: Mapping[str, Value], table: str = "gpu_samples") -> list[Reading]:
    """Return the row of a GPU with its `device_id`; none without values."""
    device_id = key(uuid)
    return [Reading(table=table, key=device_id, values={"device_id": device_id, **values})] if values else []


class Gpus:
    """The node's GPUs. A lost one is retried after 1 s, 2 s, … up to a minute; meanwhile the others are read.

    They are listed once: instances that are made later stay invisible. A GPU that does not support the questions of a
    source is not asked by it again.
    """

    def __init__(self, open_nvml: OpenNvml, list_uuids: ListUuids = whole_gpus) -> None:
        self._open_nvml = open_nvml
        self._nvml: Nvml | None = None
        try:
            self._nvml = open_nvml()
            self._uuids = list_uuids(self._nvml)
        except NvmlError as error:
            self.close()
            raise unavailable(error) from error
        if not self._uuids:
            self.close()
            raise SourceUnavailableError("NVML finds no GPU", "in a container, pass the GPU in (docker --gpus all)")
        self._lost: dict[str, NvmlError] = {}
        self._unsupported: set[str] = set()
        self._backoff = Backoff(first_seconds=FIRST_RETRY_SECONDS, longest_seconds=LAST_RETRY_SECONDS)

    def read(self, read_gpu: ReadGpu, now: Instant) -> Iterator[Reading]:
        """Yield the readings of `read_gpu` for each GPU, and then raise where one is lost.

        Raises SourceError: a GPU is lost; readings before it count.
        """
        retry = bool(self._lost) and self._backoff.is_due(now.monotonic_seconds)
        if self._nvml is None and retry:
            try:
                self._nvml = self._open_nvml()
            except NvmlError as error:
                self._lost = dict.fromkeys(self._uuids, error)
        if self._nvml is not None:
            for uuid in self._uuids:
                if uuid not in self._unsupported and (retry or uuid not in self._lost):
                    yield from self._read_one(self._nvml, uuid, read_gpu, now)
        if self._lost or self._backoff.failures:
            if not self._lost:
                self._backoff.reset()
            else:
                if len(self._lost) == len(self._uuids):
                    # NVML restarts, as a reloaded driver needs, once the last of its users has closed.
                    self.close()
                if retry or not self._backoff.failures:
                    self._backoff.note_failure(now.monotonic_seconds)
                raise SourceError("; ".join(f"cannot read {uuid}: {error}" for uuid, error in self._lost.items()))

    @property
    def lost(self) -> Mapping[str, str]:
        """Return the GPUs that the last reading could not read, with NVML's reason."""
        return {uuid: str(error) for uuid, error in self._lost.items()}

    def _read_one(self, nvml: Nvml, uuid: str, read_gpu: ReadGpu, now: Instant) -> Iterable[Reading]:
        try:
            readings = list(read_gpu(nvml, uuid, now))
        except NvmlUnsupportedError:
            self._unsupported.add(uuid)
            readings = []
        except NvmlError as error:
            self._lost[uuid] = error
            return ()
        self._lost.pop(uuid, None)
        return readings

    def close(self) -> None:
        """End the session."""
        if self._nvml is not None:
            self._nvml.close()
            self._nvml = None


class GpuSource:
    """A source that reads each GPU in turn. A subclass implements `_read_gpu`, and may list other devices."""

    list_uuids: ListUuids = staticmethod(whole_gpus)

    def __init__(self, context: SourceContext) -> None:
        self._gpus = Gpus(context.open_nvml, self.list_uuids)

    def read(self, now: Instant) -> Iterable[Reading]:
        """Yield the rows of each GPU. Raises SourceError."""
        return self._gpus.read(self._read_gpu, now)

    def _read_gpu(self, nvml: Nvml, uuid: str, now: Instant) -> Iterable[Reading]:
        """Return the rows of one GPU. Raises NvmlError."""
        raise NotImplementedError

    def close(self) -> None:
        """End the session with NVML."""
        self._gpus.close()


Values = Mapping[str, Value]
# Asks NVML about the GPU with a UUID, and returns columns.
Ask = Callable[[Nvml, str], Values]


@dataclass(frozen=True, slots=True)
class Question:
    """A cheap question of one call, which `Nvml.poll` knows; `convert` makes columns of its answer."""

    call: Call
    convert: Callable[[Any], Values]

    def __call__(self, nvml: Nvml, uuid: str) -> Values:
        """Ask NVML about one GPU."""
        function, arguments = self.call
        return self.convert(nvml.ask(function, uuid, *arguments))


Chains = Sequence[Sequence[Ask]]


def ask_one(column: str, function: str, *arguments: int, convert: Callable[[Any], Value] = lambda found: found) -> Ask:
    """Return a question for one column: the converted answer of NVML's `function`."""
    return Question((function, arguments), lambda found: {column: convert(found)})


class Questions:
    """The questions of a source about its GPUs, each independent of the others.

    A question is a chain of ways to ask it. A way that a GPU does not support is never tried again; the next one
    follows, and when none is left the columns stay absent. Once a GPU has answered all that it supports, and each by
    one call, these are prepared, and made without Python between them until one fails.
    """

    def __init__(self) -> None:
        self._chains: dict[str, list[list[Ask]]] = {}
        self._prepared: dict[str, tuple[int, tuple[Call, ...], Callable[..., Values]]] = {}

    def read(self, nvml: Nvml, uuid: str, chains: Chains, table: str = "gpu_samples") -> list[Reading]:
        """Return the GPU's row with the columns of all questions that are answered; none without columns.

        Raises NvmlError: the GPU is lost, or all that is supported failed.
        """
        if uuid in self._prepared:
            device_id, calls, convert = self._prepared[uuid]
            try:
                return [Reading(table, Computed(convert, nvml.poll(uuid, calls)), device_id)]
            except NvmlLostError:
                raise
            except NvmlError:
                del self._prepared[uuid]
        # After a failure a GPU is asked everything again: "not supported" may have been a symptom.
        remaining = self._chains.pop(uuid, None) or [list(chain) for chain in chains]
        values: dict[str, Value] = {}
        failure: NvmlError | None = None
        for chain in remaining:
            try:
                values.update(_first_answer(chain, nvml, uuid))
            except NvmlLostError:
                raise
            except NvmlError as error:
                failure = error
        if failure and not values:
            raise failure
        self._chains[uuid] = remaining
        ways = [chain[0] for chain in remaining if chain]
        if values and not failure and all(isinstance(way, Question) for way in ways):
            self._prepare(uuid, [way for way in ways if isinstance(way, Question)])
        return device_rows(uuid, values, table)

    def _prepare(self, uuid: str, questions: Sequence[Question]) -> None:
        device_id = key(uuid)

        def convert(decode: Callable[[], Sequence[Any]]) -> Values:
            values: dict[str, Value] = {"device_id": device_id}
            for question, answer in zip(questions, decode(), strict=True):
                if answer is not None:
                    values.update(question.convert(answer))
            return values

        self._prepared[uuid] = (device_id, tuple(question.call for question in questions), convert)

    def forget(self, uuid: str) -> None:
        """Ask the GPU everything again next time."""
        self._chains.pop(uuid, None)
        self._prepared.pop(uuid, None)


def _first_answer(chain: list[Ask], nvml: Nvml, uuid: str) -> Values:
    while chain:
        try:
            return chain[0](nvml, uuid)
        except NvmlUnsupportedError:
            del chain[0]
    return {}
