"""A container within a job of Slurm: Slurm says what it may use of the node, the container what it runs in."""

from dataclasses import replace

from gpuagent.environments.apptainer import Apptainer
from gpuagent.environments.charliecloud import Charliecloud
from gpuagent.environments.environment import Ending, Image, Job, Launch
from gpuagent.environments.slurm import Slurm
from gpuagent_common.limits import NO_LIMITS, Limits


class SlurmContainer:
    """Runs by srun what starts the container, which so becomes part of the job.

    Docker's containers would not: its daemon starts them, outside of what Slurm gives.

    Args:
        container: an environment whose containers are processes of the user's own.
    """

    has_image_paths = True

    def __init__(self, container: Apptainer | Charliecloud) -> None:
        self._slurm = Slurm()
        self._container = container
        self.name = f"slurm+{container.name}"
        self.python = container.python

    def check(self) -> None:
        """See whether both can be used.

        Raises:
            EnvironmentUnavailableError: one cannot.
        """
        self._slurm.check()
        self._container.check()

    def find_image(self, name: str | None) -> Image:
        """Return the image in the file or directory `name`, which the job finds where it is here.

        Raises:
            MisuseError: there is none, or it is for another architecture.
        """
        return self._container.find_image(name)

    def check_limits(self, limits: Limits) -> None:
        """See whether a job can be asked to have `limits`.

        Raises:
            MisuseError: it cannot.
        """
        self._slurm.check_limits(limits)

    def launch(self, job: Job) -> Launch:
        """Return how `job` is started in a container, and that in a job of Slurm.

        Raises:
            GpuAgentError: the container cannot be.
        """
        inside = self._container.launch(replace(job, limits=NO_LIMITS))
        return self._slurm.launch(replace(job, program=inside.command))

    def launch_beside(self, job: Job) -> Launch:
        """Return how `job` is started in a container, which as Slurm's other neighbours is in no job."""
        return self._container.launch_beside(job)

    def exit_code(self, code: int) -> int:
        """Return the program's exit code: srun passes on what the container's end was."""
        return self._container.exit_code(self._slurm.exit_code(code))

    def explain(self, ending: Ending) -> str | None:
        """Return, in words, why it failed, as far as Slurm or the container says."""
        return self._slurm.explain(ending) or self._container.explain(ending)
