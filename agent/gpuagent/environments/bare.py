"""No container: the workload is a process of the node."""

import os
import shutil
from pathlib import Path

from gpuagent.environments.environment import Environment, Job, Launch
from gpuagent.environments.support.limits import check_pinned, pin_command
from gpuagent_common.errors import MisuseError
from gpuagent_common.limits import Limits


class Bare(Environment):
    """Starts the program itself."""

    name = "bare"

    def check_limits(self, limits: Limits) -> None:
        """Check that taskset can enforce `limits`: whole CPUs, nothing else."""
        check_pinned(self.name, limits)

    def launch(self, job: Job) -> Launch:
        """Return the program itself, on as many CPUs as it may use.

        Raises:
            MisuseError: the program does not exist.
        """
        # A relative path counts from where the program starts, not from where the agent does.
        program = job.program[0]
        if os.sep in program and job.working_directory:
            program = str((job.working_directory / program).absolute())
        if not shutil.which(program, path=job.variables.get("PATH")):
            if os.sep in program and Path(program).exists():
                raise MisuseError(f"{job.program[0]!r} is not an executable file; make it one with chmod +x")
            raise MisuseError(f"this node has no program {job.program[0]!r}; give the path of one, or install it")
        return Launch(command=[*pin_command(job.limits), *job.program])
