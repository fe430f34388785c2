"""Where a process's control groups lie, in version 1, version 2 and both at once, inside containers and outside."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gpuagent.sources.support.files import exists

# How /proc/PID/cgroup and this module name the hierarchy of version 2, which holds all its controllers.
V2 = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A mounted hierarchy: the group `root` of it is what one sees at `point`."""

    controllers: frozenset[str]
    root: str
    point: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A control group in one hierarchy."""

    path: str
    directory: Path
    top: Path
    is_v2: bool

    def lineage(self) -> list[Path]:
        """Return the group's directory and those of its ancestors that can be seen: each may set a limit."""
        return [self.directory, *(parent for parent in self.directory.parents if parent.is_relative_to(self.top))]


def parse_memberships(text: str) -> dict[str, str]:
    """Return the group by controller that a /proc/PID/cgroup tells; version 2 goes by the name `V2`."""
    memberships: dict[str, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if colon and path.startswith("/") and number.isdecimal():
            memberships.update(dict.fromkeys(controllers.split(","), path))
    return memberships


def parse_mounts(text: str) -> list[Mount]:
    """Return the cgroup hierarchies among the mounts of a /proc/PID/mountinfo."""
    mounts: list[Mount] = []
    for line in text.splitlines():
        left, dash, right = line.partition(" - ")
        before, after = left.split(" "), right.split(" ")
        if not dash or len(before) < 6 or len(after) < 3 or after[0] not in {"cgroup", "cgroup2"}:
            continue
        controllers = {V2} if after[0] == "cgroup2" else set(after[2].split(","))
        point = Path(_unescaped(before[4]))
        mounts.append(Mount(controllers=frozenset(controllers), root=_unescaped(before[3]), point=point))
    return mounts


def _unescaped(field: str) -> str:
    """Spaces and their like stand in mountinfo as a backslash and three octal digits."""
    return re.sub(r"\\([0-3][0-7]{2})", lambda match: chr(int(match[1], 8)), field)


def find_group(controller: str, memberships: Mapping[str, str], mounts: Iterable[Mount]) -> Group | None:
    """Return a process's group for `controller`, or None where it has none or it cannot be seen from here.

    A controller that version 1 holds is not in version 2: so it is where both are mounted.
    """
    name = controller if controller in memberships else V2
    path = memberships.get(name)
    if path is None:
        return None
    for mount in mounts:
        directory = _directory(mount, path) if name in mount.controllers else None
        if directory is not None and exists(directory):
            return Group(path=path, directory=directory, top=mount.point, is_v2=name == V2)
    return None


def _directory(mount: Mount, path: str) -> Path | None:
    inside = PurePosixPath(path)
    if ".." in inside.parts or not inside.is_relative_to(mount.root):
        return None
    return mount.point / inside.relative_to(mount.root)
