"""How many connections the collector takes: never so many that its store finds no file left to open."""

import resource

# For the store, pages and libraries.
_RESERVED_FILES = 256

_MOST_FILES = 65_536


def raise_file_limit() -> None:
    """Let this process have as many files open as its user may; many systems begin with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def most_connections() -> int:
    """Return how many connections may be open at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _MOST_FILES if soft == resource.RLIM_INFINITY else min(soft, _MOST_FILES)
    return max(files // 2, files - _RESERVED_FILES)
