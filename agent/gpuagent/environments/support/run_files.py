"""Files of a run directory. A workload can put there whatever it likes: pipes, links, files without end."""

import contextlib
import os
import stat
from pathlib import Path


def read_run_file(path: Path, offset: int, most_bytes: int) -> bytes:
    """Return the content of a regular file from `offset` on, a negative one from its end; nothing if there is none."""
    with contextlib.suppress(OSError):
        # An ordinary open of a pipe waits for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            status = os.fstat(descriptor)
            start = offset if offset >= 0 else max(0, status.st_size + offset)
            return os.pread(descriptor, most_bytes, start) if stat.S_ISREG(status.st_mode) else b""
        finally:
            os.close(descriptor)
    return b""
