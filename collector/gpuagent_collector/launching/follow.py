"""The waiting for launched work, through absences of its agent and of the collector."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from gpuagent_common.errors import GpuAgentError, MisuseError

# Agents deliver once a second.
_LOOK_SECONDS = 1.0

# The collector declares an agent lost after two minutes; a little longer, so that its word comes first.
_PATIENCE_SECONDS = 150.0


class Work(Protocol):
    """Launched work on one agent: a run, or an experiment."""

    @property
    def key(self) -> str:
        """Its identity among the launched work."""
        ...

    @property
    def has_ended(self) -> bool:
        """True if its status is final."""
        ...

    @property
    def stage(self) -> tuple[object, ...] | None:
        """The values that make a new line when they change; None: nothing to print yet."""
        ...

    @property
    def line(self) -> str:
        """Its status in one line."""
        ...

    def as_lost(self) -> Any:
        """Return the same work with the status `lost`."""
        ...


AWork = TypeVar("AWork", bound=Work)
ShownWork = TypeVar("ShownWork", bound=Work, contravariant=True)


class Display(Protocol[ShownWork]):
    """A display of launched work."""

    def update(self, work: Sequence[ShownWork], /) -> None:
        """Show the present state."""
        ...

    def print(self, words: str, /) -> None:
        """Print a line beside it."""
        ...


def follow(
    launched: Sequence[AWork],
    look: Callable[[], Mapping[str, AWork]],
    display: Display[AWork],
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Sequence[AWork]:
    """Show launched work until all of it has ended; return its final state.

    Work that no look returns for 150 s is lost.

    Args:
        launched: the work as launched.
        look: returns the work that the collector or its agents know of now, by its key.
        display: shows it.
        sleep: waits for a number of seconds.
        clock: returns monotonic seconds.

    Raises:
        MisuseError: the collector refuses to answer.
        GpuAgentError: the collector has been away for 150 s.
    """
    answered = clock()
    seen = {work.key: answered for work in launched}
    is_away = False
    while True:
        try:
            found = look()
        except MisuseError:
            raise
        except GpuAgentError as error:
            if clock() - answered > _PATIENCE_SECONDS:
                raise
            if not is_away:
                display.print(f"{error}; trying again")
            is_away = True
        else:
            if is_away:
                # Nobody could be seen while the collector was away.
                seen = dict.fromkeys(seen, clock())
            is_away, answered = False, clock()
            seen |= dict.fromkeys(found, answered)
            launched = [found.get(work.key, work) for work in launched]
            launched = [
                work.as_lost() if not work.has_ended and answered - seen[work.key] > _PATIENCE_SECONDS else work
                for work in launched
            ]
            display.update(launched)
            if all(work.has_ended for work in launched):
                return launched
        sleep(_LOOK_SECONDS)
