"""No container: the workload is a process of the node."""

import os
import shutil

from gpuagent.environments.environment import Ending, Image, Job, Launch
from gpuagent.environments.support.limits import check_pinned, pinned
from gpuagent_common.errors import MisuseError
from gpuagent_common.limits import Limits


class Bare:
    """Starts the program as it is."""

    name = "bare"
    python: str | None = None
    has_image_paths = False

    def check(self) -> None:
        """Every node has processes."""

    def find_image(self, name: str | None) -> Image | None:
        """Return None.

        Raises:
            MisuseError: an image was named, and there is nothing to run it in.
        """
        if name:
            raise MisuseError(f"the environment 'bare' has no images, but {name!r} was given; use --environment bare")
        return None

    def check_limits(self, limits: Limits) -> None:
        """See whether taskset can keep `limits`: whole CPUs, nothing else.

        Raises:
            MisuseError: it cannot.
            EnvironmentUnavailableError: there is no taskset.
        """
        check_pinned(self.name, limits)

    def launch(self, job: Job) -> Launch:
        """Return the program itself, on as many CPUs as it may use.

        Raises:
            MisuseError: there is no such program.
        """
        # A relative path counts from where the program starts, not from where the agent does.
        program = job.program[0]
        if os.sep in program and job.working_directory:
            program = str(job.working_directory / program)
        if not shutil.which(program, path=job.variables.get("PATH")):
            raise MisuseError(f"there is no program {job.program[0]!r} on this node")
        return Launch(command=[*pinned(job.limits), *job.program])

    def launch_beside(self, job: Job) -> Launch:
        """Return the program itself."""
        return self.launch(job)

    def exit_code(self, code: int) -> int:
        """Return `code`."""
        return code

    def explain(self, ending: Ending) -> str | None:  # noqa: ARG002
        """Return None: the exit code says all."""
        return None
