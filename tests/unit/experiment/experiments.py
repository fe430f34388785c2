"""Small experiments for tests, a recording observer, and stand-ins for an agent and its GPUs."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from gpuagent.experiment.file import Experiment, parse_experiment
from gpuagent.experiment.plan import Trial
from gpuagent_proto.v1.run_pb2 import RunSpec, RunUpdate

TWO_BY_TWO = """
name: two-by-two
repeats: 3
with: [none, cpu-burn]
workloads:
  - workload: mnist
    parameters: {batch-size: [32, 64]}
"""


def experiment(text: str = TWO_BY_TWO, more: str = "") -> Experiment:
    return parse_experiment((text + more).encode(), "test.yaml")


@dataclass(slots=True)
class Recorded:
    """An observer that records lines, and counts how often a run was shown to begin."""

    lines: list[str] = field(default_factory=list)
    begun: int = 0

    def wait(self, trial: Trial, reason: str) -> None:
        self.lines.append(f"{trial.repeat} {reason}")

    def begin(self, trial: Trial) -> None:
        self.begun += 1

    def end(self, trial: Trial, update: RunUpdate, seconds: float, cool_down_seconds: float) -> None:
        self.lines.append(f"{trial.repeat} {update.status}")

    def note(self, words: str) -> None:
        self.lines.append(words)


@dataclass(slots=True)
class InstantRuns:
    """Ends every run at once, those beside cpu-burn as `beside`; stops the experiment before run number `stop_at`."""

    beside: str = "succeeded"
    stop_at: int | None = None
    specs: list[RunSpec] = field(default_factory=list)

    def __call__(self, spec: RunSpec) -> Iterator[RunUpdate]:
        if len(self.specs) == self.stop_at:
            raise KeyboardInterrupt
        self.specs.append(spec)
        run_id = f"run-{len(self.specs)}"
        yield RunUpdate(run_id=run_id, status="running")
        yield RunUpdate(run_id=run_id, status=self.beside if spec.interference else "succeeded")
