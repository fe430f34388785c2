"""Checks before the first run of an experiment, so that it does not fail after hours, or mislead."""

import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from gpuagent.experiment.file import Experiment
from gpuagent.experiment.gpus import NodeGpus
from gpuagent.experiment.plan import Trial, cells, spec
from gpuagent.runs.planning import PlannedRun
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_proto.v1.run_pb2 import RunSpec

_CHECK_TIMEOUT_SECONDS = 120.0


def check_cells(experiment: Experiment, plan: Callable[[RunSpec], list[PlannedRun]]) -> None:
    """Check that every cell can be planned: workload, parameters and environment exist, and `plan` allows them.

    Raises:
        MisuseError: a cell cannot be planned; names it.
        GpuAgentError: a cell is not allowed, or the workloads cannot be listed.
    """
    for trial in (Trial(cell=cell, repeat=1) for cell in cells(experiment)):
        try:
            (planned,) = plan(spec(trial, experiment, "."))
            if planned.image is None:
                # Without an image, the program has to be on the node.
                planned.environment.launch(planned.job(Path("/")))
        except MisuseError as error:
            raise MisuseError(f"{trial.cell.describe()}: {error}") from error


def check_concerns(concerns: Iterable[str], *, force: bool) -> None:
    """Refuse to start because of concerns, unless forced.

    Raises:
        GpuAgentError: there are concerns.
    """
    reasons = [] if force else list(concerns)
    if reasons:
        raise GpuAgentError(f"{'; '.join(reasons)}. --force starts nevertheless")


def torch_concerns(experiment: Experiment, python: str, gpus: NodeGpus) -> Iterator[str]:
    """Yield why the torch of this Python cannot use the GPUs that the experiment's workloads would want."""
    if not (any(cell.workload for cell in cells(experiment)) and gpus.temperatures()):
        return
    command = [python, "-m", "gpuagent_workloads", "check"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CHECK_TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GpuAgentError(f"cannot check whether the torch of {python} can use the GPUs: {error}") from error
    if done.returncode:
        yield done.stderr.strip().removeprefix("error: ").replace("\n", "; ")
