"""Who may read the files that a command makes: their owner alone, except what a user writes for others."""

import os

# The user's own mask, which says whom files for others are for; None: no command has set another one.
_users_mask: int | None = None


def keep_for_owner() -> None:
    """Make all files of this process for their owner alone from now on, those of DuckDB and of Arrow included."""
    global _users_mask  # noqa: PLW0603 - a process has one mask
    _users_mask = os.umask(0o077)


def follow_user() -> None:
    """Make files as the user does again: collectors of other users have to read those of a store that they share."""
    if _users_mask is not None:
        os.umask(_users_mask)


def for_others(mode: int) -> int:
    """Return `mode` as far as the user gives it to new files."""
    mask = _users_mask
    if mask is None:
        mask = os.umask(0o077)
        os.umask(mask)
    return mode & ~mask
