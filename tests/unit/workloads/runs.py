"""What the tests of the workloads share."""

import gzip
import io
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import numpy as np
import numpy.typing as npt
import psutil
import pytest

from gpuagent_workloads.cli import main
from gpuagent_workloads.errors import DataError
from gpuagent_workloads.registry import find
from gpuagent_workloads.report import Reporter
from tests.support.servers import LIMIT_SECONDS

Event = dict[str, Any]

_FIELDS: Mapping[str, tuple[set[str], set[str]]] = {
    "phase": ({"name"}, set()),
    "step": ({"phase", "step", "items"}, {"wall_seconds", "gpu_seconds"}),
    "gap": ({"name", "seconds", "step"}, set()),
    "result": ({"name", "value"}, {"unit", "phase"}),
    "metric": ({"name", "step", "value"}, set()),
    "op": ({"kind", "name", "calls", "steps"}, {"cpu_seconds", "cpu_self_seconds", "gpu_seconds", "gpu_self_seconds"}),
    "device": ({"uuid", "pid"}, set()),
    "recovery": (
        {"last_step", "resumed_step", "recovery_seconds", "lost_steps", "lost_seconds"}
        | {"during_seconds", "during_batches", "ranks_before", "ranks_after"},
        set(),
    ),
}


def read_events(path: Path) -> list[Event]:
    """Read an events file and check each line against docs/run-directory.md."""
    events = [json.loads(line, parse_constant=_refuse) for line in path.read_text(encoding="utf-8").splitlines()]
    for event in events:
        needed, optional = _FIELDS[event["event"]]
        assert isinstance(event["t"], int)
        assert needed <= event.keys() - {"t", "event"} <= needed | optional
    return events


def of_kind(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event["event"] == kind]


def results_of(events: list[Event]) -> dict[str, Any]:
    return {event["name"]: event["value"] for event in of_kind(events, "result")}


def phases_of(events: list[Event]) -> list[str]:
    return [event["name"] for event in of_kind(events, "phase")]


def reported(reporter: Reporter) -> dict[str, Any]:
    return {result.name: result.value for result in reporter.results}


def run_config(name: str, folder: Path, **parameters: Any) -> list[Event]:
    """Run a workload with these parameters in this process; return its events."""
    workload, path = find(name), folder / "events.0.0.jsonl"
    with Reporter(path) as reporter:
        workload.run(workload.config(**parameters), reporter)
    return read_events(path)


def run_reporting(folder: Path, *arguments: str, **environment: str) -> list[Event]:
    """Run a workload by its command line in this process; return its events."""
    done = run_workloads("run", *arguments, GPUAGENT_RUN_DIR=str(folder), **environment)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return read_events(folder / "events.0.0.jsonl")


def refusal(read: Callable[..., object], *arguments: object) -> str:
    """Return the one line by which a reader refuses its data."""
    with pytest.raises(DataError) as refused:
        read(*arguments)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def convolution_by_hand(side: int, channels_in: int, channels_out: int, kernel: int = 3) -> int:
    """Multiplications of a convolution with `side` × `side` outputs."""
    return side**2 * channels_out * channels_in * kernel**2


def workloads_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "gpuagent_workloads", *arguments]


@contextmanager
def measuring(name: str, *arguments: str, **environment: str) -> Iterator["subprocess.Popen[str]"]:
    """Start a workload in a session of its own; yield its process when it measures."""
    with subprocess.Popen(
        workloads_command("run", name, *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment_with(**environment),
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        assert any(line == f"{name}: measure\n" for line in process.stderr)
        yield process


def assert_gone(processes: Sequence[psutil.Process]) -> None:
    _, left = psutil.wait_procs(processes, timeout=LIMIT_SECONDS)
    assert all(process.status() == psutil.STATUS_ZOMBIE for process in left)


def environment_with(**more: str) -> dict[str, str]:
    """The environment, without what an agent or torchrun around the tests may have set."""
    ours = {"GPUAGENT_RUN_DIR", "GPUAGENT_DEBUG", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"}
    ours |= {"TORCHELASTIC_RESTART_COUNT"}
    return {name: value for name, value in os.environ.items() if name not in ours} | more


def run_workloads(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in this process, where torch is imported already; keywords are environment variables.

    Ranks are processes, whose output is not in the answer.
    """
    output, errors = io.StringIO(), io.StringIO()
    patched = mock.patch.dict(os.environ, environment_with(**environment), clear=True)
    with patched, redirect_stdout(output), redirect_stderr(errors):
        code = main(arguments)
    return subprocess.CompletedProcess(arguments, code, output.getvalue(), errors.getvalue())


def run_torchrun(script: Path, *arguments: object) -> None:
    """Run a script in two ranks, forked from a process with torch; torchrun is in this process."""
    from torch.distributed.run import main as torchrun

    words = ["--standalone", "--nproc-per-node=2", "--run-path", "--start-method=forkserver", str(script)]
    # It gives this process another name, which other tests may look for.
    comm = Path("/proc/self/comm")
    name = comm.read_text().strip()
    try:
        with mock.patch.dict(os.environ, environment_with(), clear=True):
            torchrun([*words, *map(str, arguments)])
    finally:
        comm.write_text(name)


def start_workloads(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m gpuagent_workloads` to its end in a process of its own."""
    command = workloads_command(*arguments)
    return subprocess.run(command, capture_output=True, text=True, env=environment_with(**environment), check=False)


def idx_bytes(values: npt.NDArray[np.uint8]) -> bytes:
    """The values as an IDX file."""
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()


def write_mnist(directory: Path, images: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8]) -> None:
    """Write the four files, some gzipped, with the same digits to train on and to test on."""
    for prefix in ("train", "t10k"):
        (directory / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(images), compresslevel=1))
        (directory / f"{prefix}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))


def _refuse(constant: str) -> NoReturn:
    pytest.fail(f"{constant} is not JSON")
