"""Trials, each in a process of its own: the remains of one in an allocator never affect the next.

`python -m gpuagent_workloads.suite.memory_limit.trial TRIAL`, TRIAL in JSON, prints the outcome as its last line. It
ends at once when its standard input does, so that it never outlives the search and keeps memory.
"""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from gpuagent_common.own_module import module_command
from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.training.timing import synchronize

_COMMAND = module_command(sys.executable, "gpuagent_workloads.suite.memory_limit.trial")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The shape of the input, (batch size, channels, side, side), which each layer keeps."""

    batch_size: int
    channels: int
    side: int
    # Of the convolutions.
    kernel: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Consecutive layers on one device, the convolutions first."""

    # As torch names it: cpu, cuda:0, …
    device: str
    conv: int
    fc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A stack of layers to train."""

    stages: tuple[Stage, ...]
    shape: Shape
    warmup: int
    steps: int
    # Of the stack on each device; None: all free memory.
    limit_bytes: int | None

    @classmethod
    def from_json(cls, text: str) -> "Trial":
        """Return the trial in a line of JSON."""
        members = json.loads(text)
        stages = tuple(Stage(**stage) for stage in members.pop("stages"))
        return cls(stages=stages, shape=Shape(**members.pop("shape")), **members)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a trial."""

    fits: bool
    # Mean of the timed steps, each until all devices had done it; None: it did not fit.
    step_seconds: float | None = None
    # The part of it in which each stage computed, forward and backward.
    stage_seconds: Sequence[float] = ()
    # Of each device before the trial; of a CPU, the kernel's estimate. Empty: unknown.
    free_bytes: Sequence[int] = ()
    # Of each GPU, by torch's allocator. Empty on a CPU.
    peak_allocated_bytes: Sequence[int] = ()
    # Of each GPU, by torch's allocator from the driver. Empty on a CPU.
    peak_reserved_bytes: Sequence[int] = ()


def run_in_fresh_process(trial: Trial) -> Outcome:
    """Run a trial to its end. Raises WorkloadError where it failed for another reason than memory."""
    # All but the smallest blocks come from the kernel and go back to it, so that a limit counts the memory in use.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    # The process ends when the write end is closed, also by the death of this one.
    lifeline_read, lifeline_write = os.pipe()
    try:
        done = subprocess.run(
            [*_COMMAND, json.dumps(asdict(trial))],
            stdin=lifeline_read,
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
    finally:
        os.close(lifeline_read)
        os.close(lifeline_write)
    return outcome_of(done.returncode, done.stdout, done.stderr)


def outcome_of(exit_code: int, output: str, errors: str) -> Outcome:
    """Return the outcome that a trial's process printed, or that its exit code implies.

    Raises WorkloadError: it failed for another reason than memory.
    """
    if exit_code == 0:
        return Outcome(**json.loads(output.splitlines()[-1]))
    if exit_code == -signal.SIGKILL or (exit_code == -signal.SIGABRT and "bad_alloc" in errors):
        # By the kernel, out of memory; or by C++, which failed to allocate outside any handler.
        return Outcome(fits=False)
    last = (errors.strip().splitlines() or ["it printed nothing"])[-1]
    raise WorkloadError(f"a trial failed with exit code {exit_code}: {last}")


# oneDNN gives no reason when it cannot make what it made for a smaller stack of the same layers a moment ago.
_SHORT_OF_MEMORY = re.compile(
    r"can't allocate memory|not enough memory|out of memory|bad_alloc|could not create a (primitive|memory)"
)


def run_trial(trial: Trial) -> Outcome:
    """Train the stack and return whether it fits."""
    devices = list(dict.fromkeys(torch.device(stage.device) for stage in trial.stages))
    # Torch's set-up on first use must not count: threads, a CUDA context, library handles.
    tiny = Shape(batch_size=1, channels=2, side=8)
    make_step([Stage(device=str(device), conv=1, fc=1) for device in devices], tiny, StageClock())()
    free = [free for device in devices if (free := free_bytes(device)) is not None]
    if trial.limit_bytes is not None:
        # On a GPU torch's own allocator enforces the limit. On a CPU the kernel does, by RLIMIT_DATA: it counts
        # requested writable private memory. RLIMIT_AS would also count reserved memory, of which thread stacks,
        # allocator arenas and CUDA libraries have gigabytes. A cgroup would kill the process.
        for device in devices:
            if device.type == "cuda":
                total_bytes = torch.cuda.get_device_properties(device).total_memory
                torch.cuda.set_per_process_memory_fraction(min(1.0, trial.limit_bytes / total_bytes), device)
            else:
                # This process's memory as RLIMIT_DATA counts it.
                data_bytes = _kilobytes("VmData", Path("/proc/self/status")) or 0
                allowed_bytes = data_bytes + trial.limit_bytes
                resource.setrlimit(resource.RLIMIT_DATA, (allowed_bytes, allowed_bytes))
    clock = StageClock()
    try:
        step = make_step(trial.stages, trial.shape, clock)
        for _ in range(trial.warmup):
            step()
        for device in devices:
            synchronize(device)
        clock.clear()
        began_seconds = time.perf_counter()
        for _ in range(trial.steps):
            step()
        for device in devices:
            synchronize(device)
        seconds = (time.perf_counter() - began_seconds) / trial.steps
    except Exception as error:
        if is_out_of_memory(error):
            return Outcome(fits=False, free_bytes=free)
        raise
    gpus = [device for device in devices if device.type == "cuda"]
    return Outcome(
        fits=True,
        step_seconds=seconds,
        stage_seconds=[clock.seconds(number) / trial.steps for number in range(len(trial.stages))],
        free_bytes=free,
        peak_allocated_bytes=[torch.cuda.max_memory_allocated(gpu) for gpu in gpus],
        peak_reserved_bytes=[torch.cuda.max_memory_reserved(gpu) for gpu in gpus],
    )


class StageClock:
    """The times in which each stage computes, by CUDA events in its device's queue, or by the host's clock."""

    def __init__(self) -> None:
        # By stage: begin and end of its forward pass, then of its backward pass, and so on.
        self._marks: defaultdict[int, list[torch.cuda.Event | float]] = defaultdict(list)

    def mark(self, stage: int, device: torch.device) -> None:
        """Mark that the stage begins a pass, or that it ends the one that it began."""
        if device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(device))
            self._marks[stage].append(event)
        else:
            self._marks[stage].append(time.perf_counter())

    def clear(self) -> None:
        """Forget all passes."""
        self._marks.clear()

    def seconds(self, stage: int) -> float:
        """Return the time of all passes of a stage; its device must have done them."""
        marks = self._marks[stage]
        seconds = 0.0
        for begin, end in zip(marks[::2], marks[1::2], strict=True):
            if isinstance(begin, float) or isinstance(end, float):
                seconds += float(end) - float(begin)  # type: ignore[arg-type]
            else:
                seconds += float(begin.elapsed_time(end)) / 1e3
        return seconds


def make_step(stages: Sequence[Stage], shape: Shape, clock: StageClock) -> Callable[[], None]:
    """Return a step: forward through all stages, then backward. The clock gets the passes of each stage.

    Without an optimizer, memory holds weights, their gradients, and above all the activations for the backward pass.
    """
    parts = [(torch.device(stage.device), _build_stage(stage, shape).to(stage.device)) for stage in stages]
    first_device, _ = parts[0]
    values = torch.randn(shape.batch_size, shape.channels, shape.side, shape.side, device=first_device)

    def step() -> None:
        output = values
        for number, (device, module) in enumerate(parts):
            output = output.to(device)
            if number:
                # Its gradient is the last thing that a stage computes. A hook keeps no activation alive.
                _mark_at_gradient(output, clock, number, device)
            clock.mark(number, device)
            output = module(output)
            clock.mark(number, device)
            _mark_at_gradient(output, clock, number, device)
        output.sum().backward()
        clock.mark(0, first_device)
        for _, module in parts:
            module.zero_grad()

    return step


def _mark_at_gradient(tensor: torch.Tensor, clock: StageClock, stage: int, device: torch.device) -> None:
    """Mark when the gradient of `tensor` has been computed."""
    tensor.register_hook(lambda _gradient: clock.mark(stage, device))


def _build_stage(stage: Stage, shape: Shape) -> nn.Sequential:
    convolutions: list[nn.Module] = [
        nn.Conv2d(shape.channels, shape.channels, kernel_size=shape.kernel, padding=shape.kernel // 2)
        for _ in range(stage.conv)
    ]
    linear_layers: list[nn.Module] = [nn.Linear(shape.side, shape.side) for _ in range(stage.fc)]
    stack = nn.Sequential(*convolutions, *linear_layers)
    for weights in stack.parameters():
        if weights.dim() > 1:
            # Keeps the values' size through any number of layers; torch's own initial weights would shrink them until
            # they are denormal, which a CPU computes slowly.
            nn.init.kaiming_normal_(weights, nonlinearity="linear")
    return stack


def free_bytes(device: torch.device) -> int | None:
    """Return the free memory of a GPU, or the kernel's estimate for the host; None if it is unknown."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return _kilobytes("MemAvailable", Path("/proc/meminfo"))


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory is short."""
    if isinstance(error, torch.cuda.OutOfMemoryError | MemoryError):
        return True
    # On a CPU torch and oneDNN raise a bare RuntimeError.
    return isinstance(error, RuntimeError) and _SHORT_OF_MEMORY.search(str(error)) is not None


def _kilobytes(name: str, path: Path) -> int | None:
    found = re.search(rf"^{name}:\s+(\d+) kB$", path.read_text(encoding="ascii"), re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _end_with_standard_input() -> None:
    # Not through sys.stdin, whose lock the end of the interpreter would wait for.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


def main() -> None:
    """Run the trial of the command line."""
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    print(json.dumps(asdict(run_trial(Trial.from_json(sys.argv[1])))))  # noqa: T201 - this is how the outcome travels


if __name__ == "__main__":
    main()
