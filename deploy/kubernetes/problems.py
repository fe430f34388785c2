"""Errors of a deployment."""


class DeployError(Exception):
    """The cluster failed, or took too long."""


class MisuseError(DeployError):
    """Something is missing or wrong that the user can fix."""
