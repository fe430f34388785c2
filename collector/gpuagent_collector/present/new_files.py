"""Access to the files that a command makes: their owner's alone, except what a user writes for others."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

# The user's own umask, for files that are meant for others; None: no command has set another one.
_users_mask: int | None = None


@contextmanager
def for_owner_alone() -> Iterator[None]:
    """Make all files of this process for their owner alone, those of DuckDB and of Arrow included."""
    global _users_mask  # noqa: PLW0603 - a process has one
    _users_mask = os.umask(0o077)
    try:
        yield
    finally:
        follow_user()
        _users_mask = None


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
