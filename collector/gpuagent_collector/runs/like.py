"""Likeness of runs: what ran, and the circumstances in which it ran."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from gpuagent_collector.runs.arguments import Command, Identity, identify_command
from gpuagent_collector.runs.data import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class LikeKey:
    """The facets in which runs must agree to be alike; equal for like runs. None: no value, or left out.

    Attributes:
        parameters: canonical JSON.
        identity: of the command of a program of the user's own; `command` is that of one of the runs.
        node_count: number of nodes that ran it together.
    """

    workload: str
    parameters: str
    identity: Identity | None
    platform: str | None
    environment: str | None
    image: str | None
    interference: str | None
    limits: str | None
    device: str | None
    node_count: int | None
    command: Command = field(compare=False)

    @property
    def facets(self) -> dict[str, Any]:
        """The facets by name, and the command."""
        return {name: getattr(self, name) for name in _NAMES}

    @property
    def circumstances(self) -> tuple[str, ...]:
        """The known values of what was around the program."""
        values = (self.platform, self.environment, self.image, self.interference, self.limits, self.device)
        return tuple(value for value in values if value)


_NAMES = tuple(each.name for each in fields(LikeKey))
_read_facets = attrgetter(*(name for name in _NAMES if name != "identity"))


def like_key(run: Run, *left_out: str) -> LikeKey:
    """Return what makes a run alike to others, without the facets that are left out."""
    facets: dict[str, Any] = {name: getattr(run, name) for name in _NAMES if name != "identity"}
    return LikeKey(**{**facets, "identity": identify_command(run.command), **dict.fromkeys(left_out)})


def group_like(runs: Iterable[Run], *left_out: str) -> dict[LikeKey, list[Run]]:
    """Return like runs together, in their order."""
    groups: dict[LikeKey, list[Run]] = {}
    # Thousands of runs have few different facets.
    known: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        facets = _read_facets(run)
        if facets not in known:
            known[facets] = groups.setdefault(like_key(run, *left_out), [])
        known[facets].append(run)
    return groups
