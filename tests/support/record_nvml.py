"""Record NVML's answers on this node, for tests to replay: `python -m tests.support.record_nvml OUT.json [SECONDS]`.

Every call of gpuagent's sources and facts is written with its answers in order, errors included. Run it on an idle GPU,
and again beside a workload; a GPU in MIG mode is recorded with its instances. The file has other UUIDs than the node.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gpuagent.clock import SystemClock
from gpuagent.errors import SourceError
from gpuagent.facts import Surroundings, collect_device_facts, collect_node_facts, collect_topology
from gpuagent.sources import open_sources
from gpuagent.sources.source import SourceContext
from gpuagent.sources.support.nvml_api import Nvml, NvmlError, open_nvml
from gpuagent.sources.support.nvml_calls import Call

T = TypeVar("T")

TICK_SECONDS = 0.1
_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Recorder:
    """A driver whose sessions record NVML's answers."""

    def __init__(self) -> None:
        self.outcomes: dict[str, list[dict[str, Any]]] = {}

    def open(self) -> Nvml:
        """Start a session with the driver and record its answers."""
        return _Session(self, self.record("open()", open_nvml, convert=lambda _session: None))

    def record(self, call: str, ask: Callable[[], T], convert: Callable[[T], Any] = lambda answer: answer) -> T:
        """Return the answer of `ask`, and write it down as the next outcome of `call`."""
        outcomes = self.outcomes.setdefault(call, [])
        try:
            answer = ask()
        except NvmlError as error:
            outcomes.append({"error": error.code, "words": str(error)})
            raise
        outcomes.append({"answer": convert(answer)})
        return answer


class _Session:
    def __init__(self, recorder: Recorder, nvml: Nvml) -> None:
        self._record, self._nvml = recorder.record, nvml

    def devices(self) -> Sequence[str]:
        return self._record("devices()", self._nvml.devices)

    def instances(self, device: str) -> Sequence[str]:
        return self._record(f"instances({device})", lambda: self._nvml.instances(device))

    def ask(self, function: str, device: str | None = None, *arguments: int) -> Any:
        given = [*([] if device is None else [device]), *map(str, arguments)]
        return self._record(f"{function}({', '.join(given)})", lambda: self._nvml.ask(function, device, *arguments))

    def poll(self, device: str, calls: Sequence[Call]) -> Callable[[], Sequence[Any]]:
        answers = [self.ask(function, device, *arguments) for function, arguments in calls]
        return lambda: answers

    def gpm(self, device: str, metrics: Sequence[int], now_nano: int) -> Mapping[int, float | None] | None:
        call = f"gpm({device}, {', '.join(map(str, metrics))})"
        return self._record(call, lambda: self._nvml.gpm(device, metrics, now_nano))

    def events(self, device: str, kinds: int) -> Sequence[tuple[int, int]]:
        return self._record(f"events({device}, {kinds})", lambda: self._nvml.events(device, kinds))

    def close(self) -> None:
        self._nvml.close()


def main(out: Path, seconds: float) -> None:
    """Collect facts once and read each source at its rate, ten times a second at most."""
    recorder = Recorder()
    surroundings = Surroundings(open_nvml=recorder.open)
    collect_node_facts(surroundings)
    collect_device_facts(surroundings)
    collect_topology(surroundings)
    opened, _ = open_sources(SourceContext(open_nvml=recorder.open))
    clock = SystemClock()
    for tick in range(round(seconds / TICK_SECONDS)):
        for source in opened:
            due = tick % max(1, round(1 / (source.max_rate_hz * TICK_SECONDS))) == 0
            if due and source.name.startswith("nvml"):
                try:
                    list(source.read(clock.now()))
                except SourceError as error:
                    print(f"{source.name}: {error}", file=sys.stderr)
        time.sleep(TICK_SECONDS)
    for source in opened:
        source.close()
    lines: list[str] = []
    for call, outcomes in recorder.outcomes.items():
        # A replay repeats the last outcome.
        while len(outcomes) > 1 and outcomes[-1] == outcomes[-2]:
            outcomes.pop()
        lines.append(f" {json.dumps(call)}: {json.dumps(outcomes)}")
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    for number, uuid in enumerate(sorted(set(_UUID.findall(text))), start=1):
        text = text.replace(uuid, f"{number:08x}-0000-4000-8000-{number:012x}")
    out.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 3.0)
