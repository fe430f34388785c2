"""A fake NVML with recorded answers: a JSON object of call → its outcomes in order, the last of which repeats.

A call is written as `function(arguments, …)`, an outcome as `{"answer": …}` or `{"error": code, "words": "…"}`. The
call `*` means all that are not listed. tests/fixtures/nvml/README.md describes each file.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pynvml

from gpuagent.sources.support.nvml_api import Nvml, nvml_error
from gpuagent.sources.support.nvml_calls import Call

FOLDER = Path(__file__).parents[1] / "fixtures/nvml"

FIRST = "GPU-11111111-aaaa-4aaa-8aaa-111111111111"
SECOND = "GPU-22222222-bbbb-4bbb-8bbb-222222222222"

ANY = "*"
NOT_SUPPORTED = {"error": 3, "words": "Not Supported"}


class NvmlRecording:
    """The recorded answers of a node's NVML. `calls` counts the calls of each function, `open_sessions` the open ones.

    Setting `outcomes` to those of another recording replays that one from then on.
    """

    def __init__(self, outcomes: dict[str, list[dict[str, Any]]]) -> None:
        self.outcomes = outcomes
        self.calls: Counter[str] = Counter()
        self.open_sessions = 0

    @classmethod
    def load(cls, name: str) -> "NvmlRecording":
        """Return a recording of the folder; calls that it lacks are answered as not supported."""
        return cls({ANY: [NOT_SUPPORTED], **json.loads((FOLDER / f"{name}.json").read_text())})

    @classmethod
    def of_one_gpu(cls, outcomes: dict[str, list[dict[str, Any]]]) -> "NvmlRecording":
        """Return a node with the GPU `FIRST`, which answers as given."""
        return cls({"open()": [{"answer": None}], "devices()": [{"answer": [FIRST]}], **outcomes})

    def open(self) -> Nvml:
        """Start a session, as gpuagent's `open_nvml` does."""
        self.replay("open()")
        self.open_sessions += 1
        return _Session(self)

    def replay(self, call: str) -> Any:
        """Return or raise the next outcome of `call`."""
        outcomes = self.outcomes[call if call in self.outcomes or ANY not in self.outcomes else ANY]
        outcome = outcomes[min(self.calls[call], len(outcomes) - 1)]
        self.calls[call] += 1
        if "error" in outcome:
            raise nvml_error(outcome["error"], outcome["words"])
        return outcome["answer"]


class _Session:
    def __init__(self, recording: NvmlRecording) -> None:
        self._recording = recording

    def devices(self) -> Sequence[str]:
        uuids: list[str] = self._recording.replay("devices()")
        return uuids

    def instances(self, device: str) -> Sequence[str]:
        call = f"instances({device})"
        # Most recordings are of GPUs that are not divided, without a line for it.
        uuids: list[str] = self._recording.replay(call) if call in self._recording.outcomes else []
        return uuids

    def ask(self, function: str, device: str | None = None, *arguments: int) -> Any:
        given = [*([] if device is None else [device]), *map(str, arguments)]
        return self._recording.replay(f"{function}({', '.join(given)})")

    def poll(self, device: str, calls: Sequence[Call]) -> Callable[[], Sequence[Any]]:
        answers = [self.ask(function, device, *arguments) for function, arguments in calls]
        return lambda: answers

    def gpm(self, device: str, metrics: Sequence[int], now_nano: int) -> Mapping[int, float | None] | None:
        figures = self._recording.replay(f"gpm({device}, {', '.join(map(str, metrics))})")
        return None if figures is None else {int(metric): figure for metric, figure in figures.items()}

    def events(self, device: str, kinds: int) -> Sequence[tuple[int, int]]:
        happened: list[tuple[int, int]] = self._recording.replay(f"events({device}, {kinds})")
        return [(kind, number) for kind, number in happened]

    def close(self) -> None:
        self._recording.open_sessions -= 1


def fails(code: int) -> Callable[..., Any]:
    """Return a function that raises pynvml's error of this code."""

    def call(*_arguments: object) -> Any:
        raise pynvml.NVMLError(code)

    return call


NO_DRIVER = NvmlRecording({"open()": [{"error": 12, "words": "NVML Shared Library Not Found"}]}).open
