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
