"""Slurm: the workload is a job step on this node, with the CPUs, memory and GPUs that Slurm gives it."""

import os
import re
from functools import partial
from pathlib import Path

from gpuagent.environments.environment import Ending, EnvironmentUnavailableError, Image, Job, Launch
from gpuagent.environments.support.clients import ClientError, ask_client, need_program
from gpuagent.environments.support.inside import signal_of_shell_code, site_words, working_directory
from gpuagent.environments.support.limits import refuse_changes, whole_cpus
from gpuagent.environments.support.proc import PROC, name_of, of_run
from gpuagent_common.errors import MisuseError
from gpuagent_common.limits import Limits

# What srun says where there was no job or step.
_REFUSAL = re.compile(r"^srun: error: (Unable to (?:allocate resources|create step).*)$", re.MULTILINE)


class Slurm:
    """Runs by srun, on this node. GPUAGENT_SLURM_ARGS are further options of srun, as `--partition=gpu --gres=gpu:1`:
    without them the workload has what the site gives by default, which may be no GPU."""

    name = "slurm"
    python: str | None = None
    has_image_paths = False

    def check(self) -> None:
        """See whether Slurm's controller answers.

        Raises:
            EnvironmentUnavailableError: it is not installed, or does not answer.
        """
        need_program("srun", "Slurm is a cluster's; on one of its nodes, load its module")
        try:
            ask_client(["sinfo", "--noheader", "--format=%R"])
        except ClientError as error:
            remedy = "see what `sinfo` says; SLURM_CONF names another configuration"
            raise EnvironmentUnavailableError(f"slurm does not answer: {error}", remedy) from error

    def find_image(self, name: str | None) -> Image | None:
        """Return None.

        Raises:
            MisuseError: an image was named; which plug-in would run it is the site's choice.
        """
        if name:
            raise MisuseError(
                "the environment 'slurm' takes no image; slurm+apptainer and slurm+charliecloud do, and "
                "GPUAGENT_SLURM_ARGS can hold --container-image"
            )
        return None

    def check_limits(self, limits: Limits) -> None:
        """See whether a job can be asked to have `limits`: all but changes, and whole CPUs.

        Raises:
            MisuseError: it cannot.
        """
        refuse_changes(self.name, limits)
        whole_cpus(self.name, limits)

    def launch(self, job: Job) -> Launch:
        """Return how `job` is started, and how its Slurm job is cancelled."""
        options = [f"--job-name=gpuagent-{job.run_id}", "--nodes=1", "--ntasks=1", "--input=none"]
        options += [f"--nodelist={os.uname().nodename.partition('.')[0]}", f"--chdir={working_directory(job)}"]
        options += _limit_options(job.limits)
        cancel = ["scancel", "--quiet", f"--name=gpuagent-{job.run_id}"]
        return Launch(
            command=["srun", *options, *site_words("GPUAGENT_SLURM_ARGS"), *job.program],
            # Within an allocation it is but a step, which ends with srun.
            afterwards=[] if "SLURM_JOB_ID" in job.variables else [cancel],
            find_root=partial(find_step, job.run_id),
        )

    def launch_beside(self, job: Job) -> Launch:
        """Return the program itself, on the node: where Slurm gives whole nodes, two jobs would wait for each other."""
        return Launch(command=job.program)

    def exit_code(self, code: int) -> int:
        """Return the program's exit code: srun says 128 + its number for a signal."""
        return signal_of_shell_code(code)

    def explain(self, ending: Ending) -> str | None:
        """Return, in words, why the step failed, as far as Slurm says."""
        if "oom_kill" in ending.stderr or "oom-kill" in ending.stderr or "Out Of Memory" in ending.stderr:
            return "the kernel ended it for lack of memory: it reached what Slurm gave it"
        refusal = _REFUSAL.search(ending.stderr)
        return f"{self.name} could not start it: {refusal[1]}" if refusal else None


def _limit_options(limits: Limits) -> list[str]:
    options = [] if limits.cpus is None else [f"--cpus-per-task={limits.cpus:g}"]
    # In kilobytes, rounded up: Slurm knows nothing smaller.
    return options if limits.memory_bytes is None else [*options, f"--mem={-(-limits.memory_bytes // 1024)}K"]


def find_step(run_id: str, proc: Path = PROC, agent: int | None = None) -> int | None:
    """Return Slurm's process that started the run's: not srun's, but that of the node's own daemon."""
    for _, ancestors in of_run(run_id, proc, agent):
        for pid in ancestors:
            if name_of(pid, proc) == "slurmstepd":
                return pid
    return None
