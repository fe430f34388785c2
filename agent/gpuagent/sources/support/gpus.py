"""Reading every GPU again and again, though some may be lost for a while."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from gpuagent.clock import Instant
from gpuagent.errors import SourceError, SourceUnavailableError
from gpuagent.sources.source import Reading, Value
from gpuagent.sources.support.nvml_api import (
    Nvml,
    NvmlError,
    NvmlLostError,
    NvmlUnsupportedError,
    OpenNvml,
    unavailable,
)

FIRST_RETRY_NANO = 1_000_000_000
LAST_RETRY_NANO = 60_000_000_000

ReadGpu = Callable[[Nvml, str], Iterable[Reading]]
ListUuids = Callable[[Nvml], Sequence[str]]


def whole_gpus(nvml: Nvml) -> Sequence[str]:
    """Return the UUIDs of the GPUs, divided or not."""
    return nvml.devices()


def parts(nvml: Nvml) -> Sequence[str]:
    """Return the UUIDs of what a program can be given: GPUs and, in the place of a divided one, its MIG instances."""
    return [part for gpu in nvml.devices() for part in nvml.instances(gpu) or (gpu,)]


def gpus_and_instances(nvml: Nvml) -> Sequence[str]:
    """Return the UUIDs of the GPUs, each followed by those of its MIG instances."""
    return [uuid for gpu in nvml.devices() for uuid in (gpu, *nvml.instances(gpu))]


class Gpus:
    """The node's GPUs. A lost one is tried again after 1 s, 2 s, … up to a minute; meanwhile the others are read.

    Which there are is looked up once: instances that are made later are not seen. One that does not support what a
    source asks is not asked by it again.
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
            raise SourceUnavailableError("NVML finds no GPU", "in a container, hand the GPU in (docker --gpus all)")
        self._lost: dict[str, NvmlError] = {}
        self._unsupported: set[str] = set()
        self._retry_nano = 0
        self._delay_nano = FIRST_RETRY_NANO

    def read(self, read_gpu: ReadGpu, now: Instant) -> Iterator[Reading]:
        """Yield what `read_gpu` returns for each GPU, and then, where one is lost, raise.

        Raises:
            SourceError: a GPU is lost; what was yielded before counts.
        """
        retry = bool(self._lost) and now.monotonic_nano >= self._retry_nano
        nvml = self._session(retry=retry)
        if nvml is not None:
            for uuid in self._uuids:
                if uuid not in self._unsupported and (retry or uuid not in self._lost):
                    yield from self._read_one(nvml, uuid, read_gpu)
        self._note_losses(now, retried=retry)

    @property
    def lost(self) -> Mapping[str, str]:
        """Which GPUs cannot be read, as far as the last reading tells, and what NVML says of each."""
        return {uuid: str(error) for uuid, error in self._lost.items()}

    def _session(self, *, retry: bool) -> Nvml | None:
        """Return the session; a new one where all GPUs were lost and it is time to try again."""
        if self._nvml is None and retry:
            try:
                self._nvml = self._open_nvml()
            except NvmlError as error:
                self._lost = dict.fromkeys(self._uuids, error)
        return self._nvml

    def _read_one(self, nvml: Nvml, uuid: str, read_gpu: ReadGpu) -> Iterable[Reading]:
        try:
            readings = list(read_gpu(nvml, uuid))
        except NvmlUnsupportedError:
            self._unsupported.add(uuid)
            readings = []
        except NvmlError as error:
            self._lost[uuid] = error
            return ()
        self._lost.pop(uuid, None)
        return readings

    def _note_losses(self, now: Instant, *, retried: bool) -> None:
        if not self._lost:
            self._retry_nano, self._delay_nano = 0, FIRST_RETRY_NANO
            return
        if len(self._lost) == len(self._uuids):
            self.close()
        if retried or not self._retry_nano:
            self._retry_nano = now.monotonic_nano + self._delay_nano
            self._delay_nano = min(2 * self._delay_nano, LAST_RETRY_NANO)
        raise SourceError("; ".join(f"{uuid} cannot be read: {error}" for uuid, error in self._lost.items()))

    def close(self) -> None:
        """End the session, so that NVML starts anew when the last of its users has ended theirs."""
        if self._nvml is not None:
            self._nvml.close()
            self._nvml = None


Values = Mapping[str, Value]
# Asks NVML about the GPU with a UUID, and returns columns.
Ask = Callable[[Nvml, str], Values]


class Questions:
    """Questions about one GPU, each standing alone.

    A question is a chain of ways to ask it. A way that this GPU does not support is never tried again; then the next
    one answers, and when none is left the columns stay absent.
    """

    def __init__(self, chains: Iterable[Sequence[Ask]]) -> None:
        self._chains = [list(chain) for chain in chains]

    def ask(self, nvml: Nvml, uuid: str) -> dict[str, Value]:
        """Return the columns of all questions that are answered.

        Raises:
            NvmlError: the GPU is lost, or all that is supported failed.
        """
        values: dict[str, Value] = {}
        failure: NvmlError | None = None
        for chain in self._chains:
            try:
                values.update(_first_answer(chain, nvml, uuid))
            except NvmlLostError:
                raise
            except NvmlError as error:
                failure = error
        if failure and not values:
            raise failure
        return values


def _first_answer(chain: list[Ask], nvml: Nvml, uuid: str) -> Values:
    while chain:
        try:
            return chain[0](nvml, uuid)
        except NvmlUnsupportedError:
            del chain[0]
    return {}
