"""Callbacks of trainers, called as their trainers do; the libraries' own classes are empty bases of them."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a run's events."""
    monkeypatch.setenv("GPUAGENT_RUN_DIR", str(tmp_path))
    return tmp_path / "events.0.0.jsonl"


def callback(monkeypatch: pytest.MonkeyPatch, name: str, library: str, base: str) -> Any:
    """Return a callback of gpuagent_report whose base class is an empty one."""
    stand_in = ModuleType(library)
    setattr(stand_in, base, type(base, (), {}))
    monkeypatch.setitem(sys.modules, library.partition(".")[0], stand_in)
    monkeypatch.setitem(sys.modules, library, stand_in)
    monkeypatch.delitem(sys.modules, f"gpuagent_report.{name}", raising=False)
    return importlib.import_module(f"gpuagent_report.{name}").GpuagentCallback()


def reported(events: Path) -> tuple[list[Any], list[Any]]:
    """Return the items of each line of steps, and the metrics with their steps."""
    found = [json.loads(line) for line in events.read_text().splitlines()]
    metrics = [(each["name"], each["step"], each["value"]) for each in found if each["event"] == "metric"]
    return [each["items"] for each in found if each["event"] == "steps"], metrics


def test_the_trainer_of_hugging_face_reports_steps_and_numbers(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = callback(monkeypatch, "huggingface", "transformers", "TrainerCallback")
    arguments = SimpleNamespace(train_batch_size=4, gradient_accumulation_steps=2)
    trainer.on_train_begin(arguments)
    for _ in range(7):
        trainer.on_step_end(arguments)
    trainer.on_log(arguments, SimpleNamespace(global_step=7), None, logs={"loss": 1.5, "note": "a text"})
    trainer.on_train_end()
    assert reported(events) == ([8, 8], [("loss", 7, 1.5)])


def test_the_trainer_of_lightning_reports_samples_of_accumulated_batches_once(
    events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lightning = callback(monkeypatch, "lightning", "lightning.pytorch", "Callback")
    trainer = SimpleNamespace(global_step=0, callback_metrics={"loss": 0.5})
    lightning.on_train_start(trainer, None)
    for batch in range(1, 15):
        trainer.global_step = batch // 2
        lightning.on_train_batch_end(trainer, None, None, [[0.0] * 4], batch)
    lightning.on_train_epoch_end(trainer)
    lightning.on_train_end()
    assert reported(events) == ([8, 8], [("loss", 7, 0.5)])
