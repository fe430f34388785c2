"""What stops a deployment."""


class DeployError(Exception):
    """The cluster refused something, or did not get there in time: one line that says what."""


class MisuseError(DeployError):
    """Something is missing or wrong before anything was touched: one line that says what to do."""
