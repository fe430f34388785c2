"""What is looked at before the first run of an experiment, so that it does not fail after hours, or mislead."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from gpuagent.experiment.file import Experiment
from gpuagent.experiment.gpus import NodeGpus
from gpuagent.experiment.plan import Trial, cells, spec
from gpuagent.runs.planning import PlannedRun
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_proto.v1.run_pb2 import RunSpec

_CHECK_TIMEOUT_SECONDS = 120.0


def check_cells(experiment: Experiment, plan: Callable[[RunSpec], list[PlannedRun]]) -> None:
    """See that every cell can be planned: its workload, parameters and environment are known, and `plan` allows it.

    Raises:
        MisuseError: one cannot; says which.
        GpuAgentError: it is not allowed, or the workloads cannot be asked.
    """
    for trial in (Trial(cell=cell, repeat=1) for cell in cells(experiment)):
        try:
            (planned,) = plan(spec(trial, experiment, "."))
            if planned.image is None:
                # Without an image, the program has to be on the node.
                planned.environment.launch(planned.job(Path("/")))
        except MisuseError as error:
            raise MisuseError(f"{trial.cell.describe()}: {error}") from error


def concerns(experiment: Experiment, python: str, gpus: NodeGpus) -> Iterator[str]:
    """Yield what speaks against beginning: other users of the GPUs, a torch that cannot use them."""
    yield from gpus.occupants()
    yield from torch_concerns(experiment, python, gpus)


def torch_concerns(experiment: Experiment, python: str, gpus: NodeGpus) -> Iterator[str]:
    """Yield why the torch of this Python cannot use the GPUs that workloads of the experiment would want."""
    if any(cell.workload for cell in cells(experiment)) and gpus.temperatures():
        yield from _failed_check(python)


def _failed_check(python: str) -> Iterator[str]:
    command = [python, "-m", "gpuagent_workloads", "check"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CHECK_TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GpuAgentError(f"cannot ask {python} whether its torch can use the GPUs: {error}") from error
    if done.returncode:
        yield done.stderr.strip().removeprefix("error: ").replace("\n", "; ")
