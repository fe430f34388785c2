"""The definition of a GPU that is held and idle.

A held GPU is idle when no kernel has run on it for 15 minutes. While its job's CPUs work and none of the job's GPUs
does, as when it loads data or compiles, the job counts as preparing: for an hour at most.
"""

from dataclasses import dataclass

IDLE_SECONDS = 15 * 60.0
LONGEST_PREPARATION_SECONDS = 60 * 60.0

# The CPU time by wall time from which a job's CPUs work. An interpreter that waits for its user takes a tenth of it.
QUIET_CORES = 0.05


@dataclass(slots=True)
class HeldTime:
    """The idle time of one GPU that one job holds.

    Attributes:
        since: when the last kernel was seen, or when the job was first seen.
        quiet_since: the same, or when the job was last seen preparing.
        followed: the last call.
        ended_seconds: idle time before the last kernel.
        quiet_seconds: idle time since the last kernel, before the job prepared last.
    """

    since: float
    quiet_since: float
    followed: float
    ended_seconds: float = 0.0
    quiet_seconds: float = 0.0
    # Idle time that goes on; 0: it is not idle now.
    idle_seconds: float = 0.0

    @classmethod
    def begun(cls, seconds: float) -> "HeldTime":
        """Return a GPU that is held from now on."""
        return cls(since=seconds, quiet_since=seconds, followed=seconds)

    @property
    def total_seconds(self) -> float:
        """Return all idle time."""
        return self.ended_seconds + max(self.idle_seconds, self.quiet_seconds)

    def follow(self, seconds: float, *, has_kernel: bool, prepares: bool) -> None:
        """Note the time since the last call: whether a kernel ran, and whether the job prepared."""
        before, self.followed = self.followed, seconds
        if has_kernel:
            self.ended_seconds = self.total_seconds
            self.since = self.quiet_since = seconds
            self.quiet_seconds = self.idle_seconds = 0.0
            return
        if prepares:
            quiet = before - self.quiet_since
            self.quiet_seconds += quiet if quiet >= IDLE_SECONDS else 0.0
            self.quiet_since = seconds
        quiet = seconds - self.quiet_since
        if seconds - self.since >= LONGEST_PREPARATION_SECONDS:
            self.idle_seconds = seconds - self.since
        else:
            self.idle_seconds = self.quiet_seconds + quiet if quiet >= IDLE_SECONDS else 0.0
