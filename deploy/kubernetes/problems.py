"""What stops a deployment."""


class DeployError(Exception):
    """The cluster refused something, or did not get there in time: one line that says what."""


class MisuseError(DeployError):
    """Something is missing or wrong that the user can mend: what, and what to do."""
