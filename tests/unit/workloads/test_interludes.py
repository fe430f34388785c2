"""Work that interrupts the measured steps: when it takes place, and whose its time is."""

from pathlib import Path

import torch

from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import TrainingConfig
from gpuagent_workloads.training.loop import Interlude, Interludes, train
from tests.unit.workloads.runs import of_kind, read_events, results_of

CPU = torch.device("cpu")


def test_steps_are_interrupted_every_so_often_and_have_no_time_then(tmp_path: Path) -> None:
    called: list[tuple[str, int]] = []
    path = tmp_path / "events.0.0.jsonl"
    interludes = Interludes(
        CPU,
        [
            Interlude(name="save", every=2, work=lambda step: called.append(("save", step))),
            Interlude(name="test", every=3, work=lambda step: called.append(("test", step))),
            Interlude(name="never", every=None, work=lambda step: called.append(("never", step))),
        ],
    )
    with Reporter(path) as reporter:
        config = TrainingConfig(steps=6, warmup=2, batch_size=4)
        train(lambda: torch.zeros(()), config, 10, CPU, reporter, interludes=interludes)
    # Those of the warm-up do not count.
    assert called == [("save", 2), ("test", 3), ("save", 4), ("save", 6), ("test", 6)]
    events = read_events(path)
    measured = [event for event in of_kind(events, "step") if event["phase"] == "measure"]
    assert [step["step"] for step in measured if "wall_seconds" not in step] == [1, 2, 3, 5]
    assert [(gap["name"], gap["step"]) for gap in of_kind(events, "gap")] == [(name, step - 1) for name, step in called]
    results = results_of(events)
    assert (results["saves"], results["tests"]) == (3, 2)
    assert results["save_seconds"] >= 0
    assert "nevers" not in results
