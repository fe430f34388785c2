"""Slurm: the workload is a job step on this node, with the CPUs, memory and GPUs that Slurm gives it."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from gpuagent.environments.environment import Ending, EnvironmentUnavailableError, Image, Job, Launch
from gpuagent.environments.support.clients import ClientError, ask_client, need_program
from gpuagent.environments.support.inside import has_run, signal_of_shell_code, site_words, working_directory
from gpuagent.errors import MisuseError


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
            raise MisuseError("the environment 'slurm' takes no image; GPUAGENT_SLURM_ARGS can hold --container-image")
        return None

    def launch(self, job: Job) -> Launch:
        """Return how `job` is started, and how its Slurm job is cancelled."""
        options = [f"--job-name=gpuagent-{job.run_id}", "--nodes=1", "--ntasks=1", "--input=none"]
        options += [f"--nodelist={os.uname().nodename.partition('.')[0]}", f"--chdir={working_directory(job)}"]
        cancel = ["scancel", "--quiet", f"--name=gpuagent-{job.run_id}"]
        return Launch(
            command=["srun", *options, *site_words("GPUAGENT_SLURM_ARGS"), *job.program],
            # Within an allocation it is but a step, which ends with srun.
            afterwards=[] if "SLURM_JOB_ID" in os.environ else [cancel],
            find_root=partial(find_step, job.run_id),
        )

    def exit_code(self, code: int) -> int:
        """Return the program's exit code: srun says 128 + its number for a signal."""
        return signal_of_shell_code(code)

    def explain(self, ending: Ending) -> str | None:
        """Return, in words, why the step failed, as far as Slurm says."""
        if "oom_kill" in ending.stderr or "oom-kill" in ending.stderr or "Out Of Memory" in ending.stderr:
            return "the kernel ended it for lack of memory: it reached what Slurm gave it"
        return None


def find_step(run_id: str, proc: Path = Path("/proc")) -> int | None:
    """Return Slurm's process that started the run's: not srun's, but that of the node's own daemon."""
    for directory in proc.iterdir():
        if directory.name.isdecimal() and has_run(int(directory.name), run_id, proc):
            for pid in _ancestors(proc, int(directory.name)):
                if _text(proc / str(pid) / "comm").strip() == "slurmstepd":
                    return pid
    return None


def _ancestors(proc: Path, pid: int) -> Iterator[int]:
    while pid := int((_text(proc / str(pid) / "stat").rpartition(")")[2].split() or ["", "0"])[1]):
        yield pid


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
