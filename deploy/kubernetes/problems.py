"""Errors and confirmation of a deployment."""


class DeployError(Exception):
    """The cluster failed, or took too long."""


class MisuseError(DeployError):
    """Something is missing or wrong that the user can fix."""


def confirm(question: str) -> bool:
    """Ask the user; return whether the answer is yes."""
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
