"""A trial as it goes from the search to its process, and what comes back: JSON both ways. Without torch."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Of the input: (batch size, channels, side, side), which each layer keeps."""

    batch_size: int
    channels: int
    side: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Consecutive layers on one device, the convolutions first."""

    # As torch names it: cpu, cuda:0, …
    device: str
    conv: int
    fc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A stack, and how often to train it."""

    stages: tuple[Stage, ...]
    shape: Shape
    warmup: int
    steps: int
    # That the stack may take on each device; None: all that is free.
    limit_bytes: int | None

    def as_json(self) -> str:
        """Return it as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Trial":
        """Return what `as_json` wrote."""
        members = json.loads(text)
        stages = tuple(Stage(**stage) for stage in members.pop("stages"))
        return cls(stages=stages, shape=Shape(**members.pop("shape")), **members)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a trial."""

    fits: bool
    # Mean of the timed steps, each until all devices had done it; None: it did not fit.
    step_seconds: float | None = None
    # Of each device before anything was put onto it; of a CPU, what the kernel thinks can be had. Empty: unknown.
    free_bytes: Sequence[int] = ()
    # Of each GPU, by torch's allocator. Empty on a CPU.
    peak_allocated_bytes: Sequence[int] = ()
    # Of each GPU, by torch's allocator from the driver. Empty on a CPU.
    peak_reserved_bytes: Sequence[int] = ()

    def as_json(self) -> str:
        """Return it as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Outcome":
        """Return what `as_json` wrote."""
        return cls(**json.loads(text))
