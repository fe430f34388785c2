"""The import of numpy, without what no command needs of it."""

import os

_THREADS = "OPENBLAS_NUM_THREADS"


def import_numpy() -> None:
    """Import numpy without threads for its algebra: no command uses them, and each takes a core for a moment.

    Programs that this process starts do not inherit that.
    """
    given = os.environ.get(_THREADS)
    os.environ[_THREADS] = given or "1"
    import numpy  # noqa: F401

    if given is None:
        del os.environ[_THREADS]
