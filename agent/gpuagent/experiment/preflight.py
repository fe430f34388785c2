"""What is looked at before the first run of an experiment, so that it does not fail after hours, or mislead."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

from gpuagent.catalogue import Catalogue
from gpuagent.errors import GpuAgentError, MisuseError
from gpuagent.experiment.file import Experiment
from gpuagent.experiment.gpus import NodeGpus
from gpuagent.experiment.plan import Trial, cells, spec
from gpuagent.planning import Planner

_CHECK_TIMEOUT_SECONDS = 120.0


def check_cells(experiment: Experiment, python: str) -> None:
    """See that every cell can be planned: its workload, parameters and environment are known.

    Raises:
        MisuseError: one cannot; says which.
        GpuAgentError: the workloads cannot be asked.
    """
    planner = Planner(Catalogue(python), allow_commands=True)
    for trial in (Trial(cell=cell, repeat=1) for cell in cells(experiment)):
        try:
            (planned,) = planner.plan(spec(trial, experiment, "."))
            if planned.image is None:
                # Without an image, the program has to be on the node.
                planned.environment.launch(planned.job(Path("/")))
        except MisuseError as error:
            raise MisuseError(f"{trial.cell.describe()}: {error}") from error


def concerns(experiment: Experiment, python: str, gpus: NodeGpus) -> Iterator[str]:
    """Yield what speaks against beginning: other users of the GPUs, a torch that cannot use them."""
    yield from gpus.occupants()
    if any(cell.workload for cell in cells(experiment)) and gpus.temperatures():
        yield from _torch_concerns(python)


def _torch_concerns(python: str) -> Iterator[str]:
    command = [python, "-m", "gpuagent_workloads", "check"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CHECK_TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GpuAgentError(f"cannot ask {python} whether its torch can use the GPUs: {error}") from error
    if done.returncode:
        yield done.stderr.strip().removeprefix("error: ").replace("\n", "; ")
