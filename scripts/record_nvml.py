"""Record NVML's answers on this node, for tests to replay: `record_nvml.py OUT.json [SECONDS]`.

Every call that gpuagent's sources and facts make is written with its answers in order, errors included. Run it on an
idle GPU, and again beside a workload; a GPU in MIG mode is recorded with its instances. UUIDs are replaced by others
in the file.
"""

import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuagent.clock import Instant, SystemClock
from gpuagent.errors import SourceError
from gpuagent.facts import Surroundings, collect_device_facts, collect_node_facts
from gpuagent.sources import open_sources
from gpuagent.sources.source import Source, SourceContext
from gpuagent.sources.support.nvml_api import Nvml, NvmlError, open_nvml

TICK_SECONDS = 0.1
_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Recorder:
    """A driver whose sessions record NVML's answers."""

    def __init__(self) -> None:
        self.outcomes: dict[str, list[dict[str, Any]]] = {}

    def open(self) -> Nvml:
        """Start a session with the driver and record its answers."""
        return _Session(self, self.record("open()", open_nvml, answer=lambda _session: None))

    def record(self, call: str, ask: Any, answer: Any = lambda said: said) -> Any:
        """Return the answer of `ask`, and record it as the next outcome of `call`."""
        outcomes = self.outcomes.setdefault(call, [])
        try:
            said = ask()
        except NvmlError as error:
            outcomes.append({"error": error.code, "words": str(error)})
            raise
        outcomes.append({"answer": answer(said)})
        return said


class _Session:
    def __init__(self, recorder: Recorder, nvml: Nvml) -> None:
        self._recorder, self._nvml = recorder, nvml

    def devices(self) -> Sequence[str]:
        said: Sequence[str] = self._recorder.record("devices()", self._nvml.devices)
        return said

    def instances(self, device: str) -> Sequence[str]:
        said: Sequence[str] = self._recorder.record(f"instances({device})", lambda: self._nvml.instances(device))
        return said

    def ask(self, function: str, device: str | None = None, *arguments: int) -> Any:
        given = [*([] if device is None else [device]), *map(str, arguments)]
        return self._recorder.record(
            f"{function}({', '.join(given)})", lambda: self._nvml.ask(function, device, *arguments)
        )

    def gpm(self, device: str, metrics: Sequence[int], now_nano: int) -> Mapping[int, float] | None:
        call = f"gpm({device}, {', '.join(map(str, metrics))})"
        said: Mapping[int, float] | None = self._recorder.record(
            call, lambda: self._nvml.gpm(device, metrics, now_nano)
        )
        return said

    def events(self, device: str, kinds: int) -> Sequence[tuple[int, int]]:
        said: Sequence[tuple[int, int]] = self._recorder.record(
            f"events({device}, {kinds})", lambda: self._nvml.events(device, kinds)
        )
        return said

    def close(self) -> None:
        self._nvml.close()


def main(out: Path, seconds: float) -> None:
    """Collect facts once and read each source at its rate, ten times a second at most."""
    recorder = Recorder()
    surroundings = Surroundings(open_nvml=recorder.open)
    collect_node_facts(surroundings)
    collect_device_facts(surroundings)
    opened, _ = open_sources(SourceContext(open_nvml=recorder.open))
    sources = [source for source in opened if source.name.startswith("nvml")]
    clock = SystemClock()
    for tick in range(round(seconds / TICK_SECONDS)):
        for source in sources:
            if tick % max(1, round(1 / (source.max_rate_hz * TICK_SECONDS))) == 0:
                _read(source, clock.now())
        time.sleep(TICK_SECONDS)
    for source in opened:
        source.close()
    out.write_text(_written(recorder.outcomes))


def _read(source: Source, now: Instant) -> None:
    try:
        list(source.read(now))
    except SourceError as error:
        print(f"{source.name}: {error}", file=sys.stderr)


def _written(outcomes: Mapping[str, list[dict[str, Any]]]) -> str:
    """Return the recording as JSON, one line per call, with the node's UUIDs replaced."""
    lines = (f" {json.dumps(call)}: {json.dumps(_squeezed(heard))}" for call, heard in outcomes.items())
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    for number, uuid in enumerate(sorted(set(_UUID.findall(text))), start=1):
        text = text.replace(uuid, f"{number:08x}-0000-4000-8000-{number:012x}")
    return text


def _squeezed(outcomes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Remove repetitions at the end of a list: a replay repeats the last outcome."""
    while len(outcomes) > 1 and outcomes[-1] == outcomes[-2]:
        outcomes.pop()
    return outcomes


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 3.0)
