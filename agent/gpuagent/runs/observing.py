"""Observation of a Python program by a small package in front of it (gpuagent_report)."""

import importlib.util
import shutil
from dataclasses import replace
from pathlib import Path

from gpuagent.environments.environment import Job
from gpuagent_common.errors import GpuAgentError

# In the run directory, which every environment has at the same path.
_FOLDER = "observe"
_PACKAGE = "gpuagent_report"

# In an image, whose own PYTHONPATH is known only inside: the folder, then the program and its arguments.
_IN_FRONT = 'PYTHONPATH="$0${PYTHONPATH:+:$PYTHONPATH}"; export PYTHONPATH; exec "$@"'


def observed(job: Job) -> Job:
    """Return `job` with the package first in the PYTHONPATH of its program, which starts it in every Python.

    Raises:
        GpuAgentError: the package is missing, or cannot be copied into the run directory.
    """
    found = importlib.util.find_spec(_PACKAGE)
    sources = [Path(folder) for folder in (found.submodule_search_locations or ())] if found else []
    if not sources:
        raise GpuAgentError(f"--observe needs the package {_PACKAGE} beside the agent; install gpuagent anew")
    folder = job.run_directory / _FOLDER
    try:
        shutil.copytree(sources[0], folder / _PACKAGE, ignore=shutil.ignore_patterns("__pycache__", "hook"))
        shutil.copytree(sources[0] / "hook", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    except OSError as error:
        raise GpuAgentError(f"cannot copy {_PACKAGE} into {folder}: {error}") from error
    if job.image is not None:
        return replace(job, program=["/bin/sh", "-c", _IN_FRONT, str(folder), *job.program])
    given = job.variables.get("PYTHONPATH")
    path = f"{folder}:{given}" if given else str(folder)
    return replace(job, variables={**job.variables, "PYTHONPATH": path})
