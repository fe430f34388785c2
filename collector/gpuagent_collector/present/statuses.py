"""The statuses of runs and their styles."""

# Status of a run → its rich style.
STATUSES = {
    "queued": "dim",
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "yellow",
    "timed_out": "red",
    "lost": "magenta",
}

# Shown instead of `succeeded` for a run that an experiment makes before those that count.
WARMS_UP = "warm-up"
