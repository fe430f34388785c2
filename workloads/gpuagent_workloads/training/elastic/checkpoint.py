"""Checkpoints: the state that a training continues from after a restart, in one file."""

import os
import pickle
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import torch

from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.training.progress import Position


class Stateful(Protocol):
    """An object with a state to save and restore: a network, optimizer, schedule or `Precision`."""

    def state_dict(self) -> dict[str, Any]:
        """Return its state: tensors, numbers, texts and containers of them."""
        ...

    def load_state_dict(self, state: dict[str, Any], /) -> object:
        """Restore a state that `state_dict` returned."""
        ...


def save(path: Path, position: Position, parts: Mapping[str, Stateful]) -> None:
    """Write a checkpoint, and only then replace the one before it.

    Raises:
        WorkloadError: it cannot be written.
    """
    content = {"position": asdict(position), "parts": {name: part.state_dict() for name, part in parts.items()}}
    unfinished = path.with_suffix(".unfinished")
    try:
        with unfinished.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except (OSError, RuntimeError) as error:
        raise WorkloadError(f"cannot write the checkpoint {path}: {error}") from error


def restore(path: Path, parts: Mapping[str, Stateful]) -> Position | None:
    """Restore the parts from a checkpoint and return its position; None: there is no checkpoint.

    Raises:
        WorkloadError: it cannot be read, or it is of another training.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(content["parts"][name])
        return Position(**content["position"])
    except FileNotFoundError:
        return None
    except (OSError, RuntimeError, pickle.UnpicklingError, EOFError, LookupError, TypeError, ValueError) as error:
        raise WorkloadError(
            f"cannot continue from {path} ({type(error).__name__}: {error}). "
            "If it is damaged or of another training, give an empty --checkpoint directory"
        ) from error
