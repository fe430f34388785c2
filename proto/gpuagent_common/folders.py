"""Folders of the user: in the home, or where that is missing or cannot be written, below /var/tmp, /tmp or /dev/shm.

Containers often run as a user without a home or an entry in the password database, or with a home that is read-only.
"""

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuagent_common.errors import GpuAgentError

# For folders of users without a home; the first that can be written counts.
TEMPORARY_PARENTS = (Path("/var/tmp"), Path("/tmp"), Path("/dev/shm"))  # noqa: S108 - each is checked for its owner


def user_folder(environment: Mapping[str, str], variable: str, below_home: str, name: str) -> Path:
    """Return the folder of `variable`, or `below_home`, or `name` in a private folder of a user without a home.

    Raises GpuAgentError: that private folder belongs to somebody else.
    """
    if named := environment.get(variable):
        return Path(named)
    home = home_folder(environment)
    if home and is_usable(home / below_home):
        return home / below_home
    places = temporary_folders()
    chosen = first_usable(places)
    if chosen is None:
        return home / below_home if home else places[0] / name
    check_owner(chosen, f"{variable}=DIR")
    return chosen / name


def home_folder(environment: Mapping[str, str]) -> Path | None:
    """Return the user's home: HOME, or that of the password database; None: there is none."""
    if named := environment.get("HOME"):
        return Path(named)
    try:
        return Path.home()
    except RuntimeError:
        return None


def temporary_folders() -> list[Path]:
    """Return the folders of this user alone in places that everybody can write."""
    return [parent / f"gpuagent-{os.geteuid()}" for parent in TEMPORARY_PARENTS]


def first_usable(folders: Sequence[Path]) -> Path | None:
    """Return the first folder that can be written or made; None: none can."""
    return next(filter(is_usable, folders), None)


def is_usable(folder: Path) -> bool:
    """Return whether a folder can be written, or made."""
    nearest = next(each for each in (folder, *folder.parents) if os.path.exists(each) or each == each.parent)  # noqa: PTH110 - Path.exists raises where a parent cannot be searched
    return os.access(nearest, os.W_OK | os.X_OK)


def check_owner(folder: Path, remedy: str) -> None:
    """Check that a folder, if it exists, is this user's: in places that all can write, others may have made it.

    Raises GpuAgentError: it belongs to another user, or is no folder.
    """
    try:
        found = folder.lstat()
    except OSError:
        return
    if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode):
        raise GpuAgentError(f"{folder} is not a folder of yours; name another: {remedy}")


def expand_user(path: str) -> Path:
    """Return a path with the home in place of `~`; unchanged for a user without one."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)
