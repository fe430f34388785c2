"""No container: the workload is a process of the node."""

import os
import shutil
from difflib import get_close_matches
from pathlib import Path

from gpuagent.environments.environment import Environment, Job, Launch
from gpuagent.environments.support.common import check_pinned, pin_command
from gpuagent_common.errors import MisuseError
from gpuagent_common.limits import Limits


class Bare(Environment):
    """Starts the program itself."""

    name = "bare"
    passes_input = True

    def check_limits(self, limits: Limits) -> None:
        """Check that taskset can enforce `limits`: whole CPUs, nothing else."""
        check_pinned(self.name, limits)

    def launch(self, job: Job) -> Launch:
        """Return the program itself, on as many CPUs as it may use. Raises MisuseError: the program does not exist."""
        # A relative path counts from where the program starts, not from where the agent does.
        program = job.program[0]
        if os.sep in program and job.working_directory:
            program = str((job.working_directory / program).absolute())
        path = job.variables.get("PATH")
        if not shutil.which(program, path=path):
            python = next((name for name in ("python", "python3") if shutil.which(name, path=path)), None)
            is_script = program.endswith(".py") and (job.working_directory or Path()).joinpath(program).is_file()
            hint = f"did you mean: {python} {job.program[0]}" if python and is_script else None
            if os.sep in program and Path(program).exists():
                hint = hint or "make it one with chmod +x"
                raise MisuseError(f"{job.program[0]!r} is not an executable file; {hint}")
            if python and not hint and program.endswith(".py") and (close := _close_script(job, program)):
                hint = f"did you mean: {python} {close}"
            hint = hint or "give the path of one, or install it"
            raise MisuseError(f"this node has no program {job.program[0]!r}; {hint}")
        _check_script(job)
        return Launch(command=[*pin_command(job.limits), *job.program])


def _check_script(job: Job) -> None:
    """Raise MisuseError if Python is to run a file that is not there, which would fail each run of an experiment."""
    program, *words = job.program
    if job.working_directory is None or not Path(program).name.startswith("python") or not words:
        return
    if words[0].endswith(".py") and not words[0].startswith("-"):
        try:
            is_there = (job.working_directory / words[0]).exists()
            close = None if is_there else _close_script(job, words[0])
        except OSError:  # Python says what it cannot read
            return
        if not is_there:
            hint = f"; did you mean {close}?" if close else ""
            raise MisuseError(f"there is no file {words[0]!r:.100} in {job.working_directory}{hint}")


def _close_script(job: Job, name: str) -> str | None:
    """Return the script in the folder of `name` whose name is most like it; None: none is."""
    folder = Path(name).parent
    known = sorted(each.name for each in (job.working_directory or Path()).joinpath(folder).glob("*.py"))
    close = get_close_matches(Path(name).name, known, n=1)
    return str(folder / close[0]) if close else None
