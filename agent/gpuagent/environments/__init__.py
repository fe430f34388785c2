"""Ways to start a workload, one file each."""

from gpuagent.environments.bare import Bare
from gpuagent.environments.environment import Environment
from gpuagent.errors import MisuseError

ENVIRONMENTS: tuple[Environment, ...] = (Bare(),)
"""Every environment there is. A new one is a file here and a line in this tuple."""


def find_environment(name: str) -> Environment:
    """Return the environment called `name`; an empty name means bare.

    Raises:
        MisuseError: there is none of that name.
    """
    for environment in ENVIRONMENTS:
        if environment.name == (name or "bare"):
            return environment
    known = ", ".join(environment.name for environment in ENVIRONMENTS)
    raise MisuseError(f"unknown environment {name!r}; there are: {known}")


__all__ = ["ENVIRONMENTS", "Environment", "find_environment"]
