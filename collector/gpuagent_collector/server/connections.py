"""The limit of connections: the store must always find a file descriptor left."""

import resource

# For the store, pages and libraries.
_RESERVED_FILES = 256

_MOST_FILES = 65_536


def raise_file_limit() -> None:
    """Raise the limit of open files to the user's maximum; many systems start with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def most_connections() -> int:
    """Return the limit of connections that are open at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _MOST_FILES if soft == resource.RLIM_INFINITY else min(soft, _MOST_FILES)
    return max(files // 2, files - _RESERVED_FILES)
