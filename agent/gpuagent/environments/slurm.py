"""Slurm: the workload is a job step on this node, with the CPUs, memory and GPUs that Slurm gives it.

Jobs that others started are recognised and named in `sources/support/slurm.py`.
"""

import contextlib
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from gpuagent.environments.environment import Ending, Environment, EnvironmentUnavailableError, Image, Job, Launch, Span
from gpuagent.environments.support.common import (
    ClientError,
    Container,
    ask_client,
    find_processes,
    need_program,
    read_run_file,
    refuse_changes,
    signal_of_shell_code,
    site_words,
    whole_cpus,
    working_directory,
)
from gpuagent_common.errors import MisuseError
from gpuagent_common.limits import NO_LIMITS, Limits

# The line in which srun says that it got no job or step.
_REFUSAL = re.compile(r"^srun: error: (Unable to (?:allocate resources|create step).*)$", re.MULTILINE)
# Slurm runs a program right before the task, and one right after it.
_NOTES = ("prolog", "epilog")
_NOTE_BYTES = 64
_OUT_OF_MEMORY = ("oom_kill", "oom-kill", "Out Of Memory")


class Slurm(Environment):
    """Runs by srun, on this node.

    GPUAGENT_SLURM_ARGS are further options of srun, such as `--partition=gpu --gres=gpu:1`; without them the workload
    gets the site's default, which may be no GPU.
    """

    name = "slurm"

    def check(self) -> None:
        """Check that Slurm's controller answers."""
        need_program("srun", "run gpuagent on a node of a Slurm cluster, or load its module: module load slurm")
        try:
            ask_client(["sinfo", "--noheader", "--format=%R"])
        except ClientError as error:
            remedy = "see the output of `sinfo`; SLURM_CONF names another configuration"
            raise EnvironmentUnavailableError(f"slurm does not answer: {error}", remedy) from error

    def find_image(self, name: str | None) -> Image | None:
        """Return None: which plug-in would run an image is the site's choice."""
        if name:
            raise MisuseError(
                "slurm takes no image; use slurm+apptainer or slurm+charliecloud, or set --container-image in "
                "GPUAGENT_SLURM_ARGS"
            )
        return None

    def check_limits(self, limits: Limits) -> None:
        """Check that a job can have `limits`: whole CPUs, memory, no changes."""
        refuse_changes(self.name, limits)
        whole_cpus(self.name, limits)

    def prepare(self, run_directory: Path) -> None:
        """Write the scripts that note the begin and the end of the task."""
        for name in _NOTES:
            script = _script(run_directory, name)
            with contextlib.suppress(OSError):
                script.write_text(f"#!/bin/sh\ndate +%s%N > {shlex.quote(str(_note(run_directory, name)))}\nexit 0\n")
                script.chmod(0o700)

    def launch(self, job: Job) -> Launch:
        """Return the srun command, and the one that cancels its Slurm job."""
        options = [f"--job-name=gpuagent-{job.run_id}", "--nodes=1", "--ntasks=1", "--input=none"]
        options += [f"--nodelist={os.uname().nodename.partition('.')[0]}", f"--chdir={working_directory(job)}"]
        if job.limits.cpus is not None:
            options.append(f"--cpus-per-task={job.limits.cpus:g}")
        if job.limits.memory_bytes is not None:
            # In kilobytes, rounded up: Slurm has no smaller unit.
            options.append(f"--mem={-(-job.limits.memory_bytes // 1024)}K")
        for name in _NOTES:
            script = _script(job.run_directory, name)
            if os.access(script, os.X_OK):  # Slurm would not start the task
                options.append(f"--task-{name}={script}")
        cancel = ["scancel", "--quiet", f"--name=gpuagent-{job.run_id}"]
        return Launch(
            command=["srun", *options, *site_words("GPUAGENT_SLURM_ARGS"), *job.options, *job.program],
            # Within an allocation it is only a step, which ends with srun.
            afterwards=[] if "SLURM_JOB_ID" in job.variables else [cancel],
            find_root=partial(find_step, job.run_id),
        )

    def launch_beside(self, job: Job) -> Launch:
        """Return the program itself, on the node: where Slurm gives whole nodes, two jobs would wait for each other."""
        return Launch(command=job.program)

    def find_span(self, run_directory: Path) -> Span:
        """Return when the program's task began and ended: a job may wait, and srun ends later."""
        # No note is there of the end of a task that was killed, for one.
        notes = [read_run_file(_note(run_directory, name), 0, _NOTE_BYTES).strip() for name in _NOTES]
        started, ended = (int(note) if note.isdigit() else None for note in notes)
        return Span(started_unix_nano=started, ended_unix_nano=ended)

    def exit_code(self, code: int) -> int:
        """Return the program's exit code: srun reports a signal as 128 + its number."""
        return signal_of_shell_code(code)

    def explain_own(self, ending: Ending) -> str | None:
        """Return why Slurm ended or refused the step."""
        if any(words in ending.stderr for words in _OUT_OF_MEMORY):
            return f"{ending.memory_limit} ran out, and the kernel ended it"
        refusal = _REFUSAL.search(ending.stderr)
        return f"{self.name} could not start it: {refusal[1]}" if refusal else None


class SlurmContainer(Slurm):
    """Runs by srun the command that starts a container, which becomes part of the Slurm job.

    Docker's containers would not: its daemon starts them, outside of the job. `container` is an environment whose
    containers are processes of the user's own.
    """

    has_image_paths = True

    def __init__(self, container: Container) -> None:
        self._container = container
        self.name = f"slurm+{container.name}"
        self.python = container.python

    def check(self) -> None:
        """Check that both Slurm and the container's runtime work."""
        super().check()
        self._container.check()

    def find_image(self, name: str | None) -> Image | None:
        """Return the image in the file or directory `name`, which the job finds at the same path."""
        return self._container.find_image(name)

    def launch(self, job: Job) -> Launch:
        """Return the srun command with the container's command in it."""
        inside = self._container.launch(replace(job, limits=NO_LIMITS, options=()))
        return replace(super().launch(replace(job, program=inside.command)), find_program=inside.find_program)

    def launch_beside(self, job: Job) -> Launch:
        """Return the container's command, in no Slurm job, as for Slurm's other neighbours."""
        return self._container.launch_beside(job)

    def exit_code(self, code: int) -> int:
        """Return the program's exit code: srun passes on the container's."""
        return self._container.exit_code(super().exit_code(code))

    def explain_own(self, ending: Ending) -> str | None:
        """Return the reason that Slurm or the container gives."""
        return super().explain_own(ending) or self._container.explain_own(ending)


def _script(run_directory: Path, name: str) -> Path:
    return run_directory / f"slurm-{name}"


def _note(run_directory: Path, name: str) -> Path:
    return run_directory / f"slurm-{name}.time"


def find_step(run_id: str, agent: int | None = None) -> int | None:
    """Return the process of Slurm's daemon on this node that started the run; None: not there yet."""
    ancestors: Sequence[tuple[int, str]]
    for _, ancestors in find_processes(run_id, agent):
        for pid, name in ancestors:
            if name == "slurmstepd":
                return pid
    return None
