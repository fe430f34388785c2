"""The kernel's notice that a control group ran out of memory, for engines that do not report it."""

import contextlib
import os
import select
from pathlib import Path

from gpuagent.sources.support.cgroups import Group, find_group, parse_memberships, parse_mounts

# The notice of a removed group may come this long after its directory has gone.
_REMOVAL_SECONDS = 0.5


class OomNotice:
    """A listener for lack of memory in one control group of version 1, until `close`.

    The counters of a group go with its container, but an eventfd stays. The kernel adds to it whenever the group runs
    out of memory, and once more when it is removed (its documentation of cgroup-v1's memory controller, sections 9 and
    10).
    """

    def __init__(self, group: Group) -> None:
        """Listen; raise OSError if the kernel has no such notices, or none for this user."""
        self._directory = group.directory
        self._count = 0
        self._notices = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            watched = os.open(group.directory / "memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
            try:
                (group.directory / "cgroup.event_control").write_text(f"{self._notices} {watched}")
            finally:
                os.close(watched)
        except BaseException:
            self.close()
            raise

    def was_given(self) -> bool:
        """Return whether the group has run out of memory."""
        self._read(0)
        if self._directory.exists():
            return self._count > 0
        if self._count < 2:
            self._read(_REMOVAL_SECONDS)  # the removal may be counted already, or still to come
        return self._count > 1

    def close(self) -> None:
        """Stop listening."""
        os.close(self._notices)

    def _read(self, seconds: float) -> None:
        if select.select([self._notices], [], [], seconds)[0]:
            self._count += os.eventfd_read(self._notices)


def open_oom_notice(pid: int, proc: Path = Path("/proc")) -> OomNotice | None:
    """Return a listener on the control group of a process.

    None if the group cannot be seen, or is of version 2, which engines report themselves.
    """
    with contextlib.suppress(OSError):
        memberships = parse_memberships((proc / str(pid) / "cgroup").read_text())
        group = find_group("memory", memberships, parse_mounts((proc / "self/mountinfo").read_text()))
        if group is not None and not group.is_v2:
            return OomNotice(group)
    return None
