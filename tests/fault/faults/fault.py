"""What a fault is."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol, TypeVar

from tests.fault.invariants import Findings


class Trying(Protocol):
    """Where a fault is tried."""

    def settle(self) -> float:
        """Wait until everything that is durable now is stored; return the seconds that took."""
        ...

    def findings(self) -> Findings:
        """Return what is lost or duplicated, of everything so far."""
        ...

    def leftovers(self) -> list[str]:
        """Return what should not be there."""
        ...

    def close(self) -> None:
        """End every process."""
        ...


Where = TypeVar("Where", bound=Trying)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that happens, and is over when `happen` returns; nobody helps with what follows."""

    name: str
    open: Callable[[Path], Trying]
    # Takes what `open` returned, and the source of all chance.
    happen: Callable[..., None]
    # Whether messages may be missing, where a gap tells of it.
    gives_up: bool = False


def fault(happen: Callable[[Where, Random], None], open_: Callable[[Path], Where], *, gives_up: bool = False) -> Fault:
    """Return the fault that is named as the function is."""
    return Fault(name=happen.__name__.replace("_", "-"), open=open_, happen=happen, gives_up=gives_up)
