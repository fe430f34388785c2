"""Records what NVML answers on this node, for tests to replay: `record_nvml.py OUT.json [SECONDS]`.

Every call that gpuagent's sources and facts make is written with its answers in order, errors included. Run it on an
idle GPU, and again beside a workload.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuagent.clock import SystemClock
from gpuagent.errors import SourceError
from gpuagent.facts import Surroundings, collect_device_facts, collect_node_facts
from gpuagent.sources import open_sources
from gpuagent.sources.source import SourceContext
from gpuagent.sources.support.nvml_api import Nvml, NvmlError, open_nvml

TICK_SECONDS = 0.1


class Recorder:
    """Opens sessions that write down what NVML says."""

    def __init__(self) -> None:
        self.outcomes: dict[str, list[dict[str, Any]]] = {}

    def open(self) -> Nvml:
        """Start a session with the driver and record its answers."""
        return _Session(self, self.record("open()", open_nvml, answer=lambda _session: None))

    def record(self, call: str, ask: Any, answer: Any = lambda said: said) -> Any:
        """Return what `ask` says, and write it down as the next outcome of `call`."""
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

    def close(self) -> None:
        self._nvml.close()


def main(out: Path, seconds: float) -> None:
    """Collect facts once and read the sources ten times a second."""
    recorder = Recorder()
    surroundings = Surroundings(open_nvml=recorder.open)
    collect_node_facts(surroundings)
    collect_device_facts(surroundings)
    opened, _ = open_sources(SourceContext(open_nvml=recorder.open))
    sources = [source for source in opened if source.name.startswith("nvml")]
    clock, end = SystemClock(), time.monotonic() + seconds
    while time.monotonic() < end:
        for source in sources:
            try:
                list(source.read(clock.now()))
            except SourceError as error:
                print(f"{source.name}: {error}", file=sys.stderr)
        time.sleep(TICK_SECONDS)
    for source in opened:
        source.close()
    out.write_text(
        json.dumps({call: _squeezed(outcomes) for call, outcomes in recorder.outcomes.items()}, indent=1) + "\n"
    )


def _squeezed(outcomes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out the end of a list that only repeats: a replay repeats the last outcome."""
    while len(outcomes) > 1 and outcomes[-1] == outcomes[-2]:
        outcomes.pop()
    return outcomes


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 3.0)
