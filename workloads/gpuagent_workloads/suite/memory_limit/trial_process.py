"""The process of one trial: `python -m gpuagent_workloads.suite.memory_limit.trial_process TRIAL`, TRIAL in JSON.

It prints the outcome as its last line. It ends at once when its standard input does, so that it never outlives the
search that started it and goes on holding memory.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence

import torch

from gpuagent_workloads.measuring.timing import synchronize
from gpuagent_workloads.suite.memory_limit.limits import free_bytes, is_out_of_memory, limit_memory
from gpuagent_workloads.suite.memory_limit.stack import make_step
from gpuagent_workloads.suite.memory_limit.trial import Outcome, Shape, Stage, Trial


def run_trial(trial: Trial) -> Outcome:
    """Train the stack and say whether that fitted."""
    devices = list(dict.fromkeys(torch.device(stage.device) for stage in trial.stages))
    # What torch sets up on first use must not count: threads, a CUDA context, library handles.
    tiny = Shape(batch_size=1, channels=2, side=8)
    make_step([Stage(device=str(device), conv=1, fc=1) for device in devices], tiny)()
    free = [free for device in devices if (free := free_bytes(device)) is not None]
    if trial.limit_bytes is not None:
        limit_memory(devices, trial.limit_bytes)
    try:
        seconds = _time_steps(make_step(trial.stages, trial.shape), trial, devices)
    except Exception as error:
        if is_out_of_memory(error):
            return Outcome(fits=False, free_bytes=free)
        raise
    gpus = [device for device in devices if device.type == "cuda"]
    return Outcome(
        fits=True,
        step_seconds=seconds,
        free_bytes=free,
        peak_allocated_bytes=[torch.cuda.max_memory_allocated(gpu) for gpu in gpus],
        peak_reserved_bytes=[torch.cuda.max_memory_reserved(gpu) for gpu in gpus],
    )


def _time_steps(step: Callable[[], None], trial: Trial, devices: Sequence[torch.device]) -> float:
    """Return the mean seconds of a step."""
    for _ in range(trial.warmup):
        step()
    _synchronize(devices)
    began_seconds = time.perf_counter()
    for _ in range(trial.steps):
        step()
    _synchronize(devices)
    return (time.perf_counter() - began_seconds) / trial.steps


def _synchronize(devices: Sequence[torch.device]) -> None:
    for device in devices:
        synchronize(device)


def _end_with_standard_input() -> None:
    # Not through sys.stdin, whose lock the end of the interpreter would wait for.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


def main() -> None:
    """Run the trial of the command line."""
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    print(run_trial(Trial.from_json(sys.argv[1])).as_json())  # noqa: T201 - this is how the outcome travels


if __name__ == "__main__":
    main()
