"""NVML's answers, recorded on GPUs, with some of them odd, huge or missing: sources fail in words, rows can be sent."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpuagent.errors import SourceError, SourceUnavailableError
from gpuagent.facts import Surroundings, collect_device_facts
from gpuagent.facts.gpus import collect_driver_facts
from gpuagent.sampling.rows import encode_records
from gpuagent.sources.nvml import NvmlEnergy, NvmlEvents, NvmlGpu, NvmlHealth, NvmlPower
from gpuagent.sources.nvml_gpm import NvmlGpm
from gpuagent.sources.nvml_processes import NvmlProcesses
from gpuagent.sources.source import SourceContext
from tests.fuzz.choices import Choices
from tests.fuzz.records import encode_readings
from tests.fuzz.tally import Attempt
from tests.support.nvml_replay import FOLDER, NvmlRecording
from tests.support.trees import instant

TOKENS: tuple[bytes, ...] = ()

_SOURCES = (NvmlGpu, NvmlGpm, NvmlPower, NvmlEnergy, NvmlProcesses, NvmlHealth, NvmlEvents)

# NVML has several words for `not available`, among them the largest number of 64 bits.
_NUMBERS = (0, -1, 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, 0.0, -0.5, 1e308, float("inf"), float("nan"))

_MOST_CHANGES = 4


@contextmanager
def opened(folder: Path) -> Iterator[Attempt]:
    """Replay."""
    recordings = [NvmlRecording.load(path.stem).outcomes for path in sorted(FOLDER.glob("*.json"))]
    (folder / "proc").mkdir()

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        outcomes = dict(choices.one_of(recordings))
        for _ in range(1 + choices.below(_MOST_CHANGES)):
            call = sorted(outcomes)[choices.below(len(outcomes))]
            outcomes[call] = [_changed(outcome, choices) for outcome in outcomes[call]]
        _sample(NvmlRecording(outcomes), folder / "proc")

    yield attempt


def _changed(outcome: dict[str, Any], choices: Choices) -> dict[str, Any]:
    if choices.below(4) == 0 or "answer" not in outcome:
        return {"error": choices.below(40), "words": "odd"}
    return {"answer": _odd(outcome["answer"], choices)}


def _odd(answer: Any, choices: Choices) -> Any:
    """Return an answer of the same shape as ctypes gives it, with other numbers, texts and lengths of lists."""
    if isinstance(answer, dict):
        return {name: _odd(part, choices) for name, part in answer.items()}
    if isinstance(answer, list):
        parts = [_odd(part, choices) for part in answer]
        # Pairs and the like are as long as they are; lists of things may end anywhere.
        is_of_things = not any(isinstance(part, int | float) for part in answer)
        return parts[: choices.below(len(parts) + 1)] if is_of_things and choices.below(3) == 0 else parts
    if isinstance(answer, str):
        return choices.one_of((answer, "", "N/A", "\N{REPLACEMENT CHARACTER}", choices.text()))
    if isinstance(answer, bool) or answer is None:
        return answer
    kinds = [number for number in _NUMBERS if isinstance(number, type(answer))]
    return choices.one_of((answer, *kinds))


def _sample(recording: NvmlRecording, proc: Path) -> None:
    context = SourceContext(proc=proc, open_nvml=recording.open)
    for open_source in _SOURCES:
        with suppress(SourceUnavailableError):
            source = open_source(context)
            for seconds in (0, 1):
                with suppress(SourceError):
                    encode_readings(source.read(instant(seconds)))
            source.close()
    surroundings = Surroundings(root=proc, proc=proc, sys=proc, environment={}, open_nvml=recording.open)
    collect_driver_facts(surroundings)
    encode_records({"session_devices": [asdict(facts) for facts in collect_device_facts(surroundings)]})
    assert recording.open_sessions == 0
