"""Follows runs to their end, whatever goes away in between."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from gpuagent_collector.launching.progress import Progress
from gpuagent_common.errors import GpuAgentError, MisuseError

# How often: agents deliver once a second.
_LOOK_SECONDS = 1.0

# How long a collector may be away, and a run unheard of whose agent has gone: agents are lost after two minutes.
_PATIENCE_SECONDS = 150.0


class Show(Protocol):
    """Shows how runs come along."""

    def update(self, runs: Sequence[Progress]) -> None:
        """Show how they stand."""
        ...

    def say(self, words: str) -> None:
        """Say something else."""
        ...


def follow(
    look: Callable[[], Sequence[Progress]],
    connected: Callable[[], set[str]],
    show: Show,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Sequence[Progress]:
    """Show how runs stand until all have ended; return how.

    Args:
        look: returns how they stand.
        connected: returns the sessions of the agents that are connected.
        show: what shows it.
        sleep: waits so many seconds.
        clock: tells seconds.

    Raises:
        GpuAgentError: the collector has been away for too long.
    """
    heard = begun = clock()
    is_away = False
    while True:
        try:
            runs = look()
            if clock() - begun > _PATIENCE_SECONDS and not all(run.is_known for run in runs):
                runs = _without_vanished(runs, connected())
        except MisuseError:
            raise
        except GpuAgentError as error:
            if clock() - heard > _PATIENCE_SECONDS:
                raise
            if not is_away:
                show.say(f"{error}; trying again")
            is_away = True
        else:
            heard, is_away = clock(), False
            show.update(runs)
            if all(run.has_ended for run in runs):
                return runs
        sleep(_LOOK_SECONDS)


def _without_vanished(runs: Sequence[Progress], connected: set[str]) -> Sequence[Progress]:
    """Call lost what nobody has told of and whose agent has gone: it was killed before it had written it down."""
    reason = "its agent went away before it told of it"
    return [
        run if run.is_known or run.run.session_uuid in connected else replace(run, status="lost", reason=reason)
        for run in runs
    ]
