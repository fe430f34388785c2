"""The events file of one rank: see docs/run-directory.md."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

# Ranks as torchrun, Open MPI, PMI and Slurm number them.
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


class EventsFile:
    """A file to which one process appends events, each by one system call."""

    def __init__(self, path: str) -> None:
        """Create the file.

        Raises:
            FileExistsError: another process, or another part of this one, reports for this rank.
            OSError: it cannot be created.
        """
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def write(self, event: str, unix_nano: int, **fields: Any) -> None:
        """Append an event; fields that are None are left out. Raises ValueError if a number is NaN or infinite."""
        present = {name: value for name, value in fields.items() if value is not None}
        line = json.dumps({"t": unix_nano, "event": event, **present}, allow_nan=False)
        os.write(self._descriptor, line.encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def events_path(directory: str) -> str:
    """Return the path of this process's events file in a run directory."""
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    # The number of this process among those that train together; 0 if it trains alone.
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        rank = int(distributed.get_rank())
    else:
        rank = next((int(os.environ[name]) for name in _RANKS if os.environ.get(name, "").isdecimal()), 0)
    return os.path.join(directory, f"events.{rank}.{restart if restart.isdecimal() else 0}.jsonl")
