"""Ranks that fork from one process with torch: each that imports it, and its compiler, takes longer than its work."""

import multiprocessing
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.multiprocessing.spawn import ProcessContext, start_processes

from gpuagent_workloads.rank import main

# The last two are what test modules with the functions of ranks import.
multiprocessing.set_forkserver_preload(
    ["torch._dynamo", "gpuagent_workloads.rank", "gpuagent_workloads.measuring.setup", "hypothesis", "pytest"]
)


@pytest.fixture
def forked_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the ranks of a test, for what does not depend on how they are started."""
    monkeypatch.setattr("gpuagent_workloads.measuring.setup.spawn", _spawn)
    monkeypatch.setattr("gpuagent_workloads.training.launch.elastic_launch", _launch)


def _spawn(work: Callable[..., None], arguments: tuple[object, ...], **options: Any) -> ProcessContext:
    started = (dict(os.environ), work, *arguments)
    context: ProcessContext = start_processes(_run_work, started, start_method="forkserver", **options)
    return context


def _run_work(rank: int, environment: Mapping[str, str], work: Callable[..., None], *arguments: object) -> None:
    os.environ.update(environment)
    work(rank, *arguments)


def _launch(settings: LaunchConfig, _python: str) -> Callable[..., object]:
    def start(*words: str) -> object:
        launch = elastic_launch(replace(settings, start_method="forkserver"), _run_rank)
        return launch(os.getpid(), dict(os.environ), words[words.index("run") :])

    return start


def _run_rank(launcher: int, environment: Mapping[str, str], words: tuple[str, ...]) -> None:
    """Run a rank's command line in the launcher's environment, with its output in that of the launcher."""
    os.environ.update(environment)
    for number in (1, 2):
        os.dup2(os.open(f"/proc/{launcher}/fd/{number}", os.O_WRONLY | os.O_APPEND), number)
    if code := main(words):
        os._exit(code)
