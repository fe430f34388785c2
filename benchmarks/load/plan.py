"""The plan of a load run: its agents, their faults, and the times of these."""

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random

MAX_GPUS = 8

_SLOW_SHARE = 0.05
_STALLED_SHARE = 0.05


class Kind(Enum):
    """The fault of an agent."""

    HEALTHY = "healthy"
    # Its connection passes everything on late, both ways.
    SLOW = "slow"
    # Its process is stopped (SIGSTOP) for a minute, again and again.
    STALLED = "stalled"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNode:
    """One node, with its agent's only session. Samples have whole microseconds: the store keeps no more."""

    index: int
    kind: Kind
    node_uuid: str
    session_uuid: str
    gpus: int
    # Time of its first sample.
    start_unix_micros: int
    # From one sample to the next.
    period_micros: int

    @property
    def hostname(self) -> str:
        """The name that its token is made for."""
        return f"node-{self.index:05d}"

    def gpu_uuid(self, gpu: int) -> str:
        """Return the identity of its GPU with this index."""
        return f"GPU-{self.node_uuid}-{gpu}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The schedule, in seconds from the moment at which all agents are connected."""

    seconds: float
    # Nothing happens: no fault and no restart.
    calm: bool = False

    @property
    def settled(self) -> float:
        """From here on the collector's memory should be flat: buffers are as large as they become."""
        return min(180.0, 0.15 * self.seconds)

    @property
    def trouble(self) -> float:
        """Until here all agents are healthy."""
        return math.inf if self.calm else self.seconds / 3

    @property
    def restart(self) -> float:
        """The collector is killed here, and started again at once."""
        return math.inf if self.calm else self.seconds / 2

    @property
    def stretches(self) -> dict[str, tuple[float, float]]:
        """The stretches of the report, from and to; without faults the quarters."""
        if self.calm:
            quarter = self.seconds / 4
            return {f"quarter {place + 1}": (place * quarter, (place + 1) * quarter) for place in range(4)}
        return {
            "all healthy": (self.settled, self.trouble),
            "some slow, some stalled": (self.trouble, self.restart),
            "after the restart": (self.restart + self.settled, self.seconds),
        }

    @property
    def stall_seconds(self) -> float:
        """The times for which stalled agents are stopped, and run in between."""
        return min(60.0, self.seconds / 15)

    def stalled_at(self, second: float) -> bool:
        """Return whether stalled agents are to be stopped now."""
        in_trouble = self.trouble <= second < self.seconds - self.stall_seconds
        return in_trouble and int((second - self.trouble) // self.stall_seconds) % 2 == 0


def draw_nodes(
    count: int, *, seed: int, rate_hz: float, start_unix_micros: int, calm: bool = False
) -> Sequence[SimulatedNode]:
    """Draw nodes with 1 to 8 GPUs each, a twentieth of them slow and a twentieth stalled, unless all stay calm."""
    random = Random(seed)
    troubled = [Kind.SLOW] * round(_SLOW_SHARE * count) + [Kind.STALLED] * round(_STALLED_SHARE * count)
    troubled = [] if calm else troubled
    kinds = troubled + [Kind.HEALTHY] * (count - len(troubled))
    random.shuffle(kinds)
    return [
        SimulatedNode(
            index=index,
            kind=kind,
            node_uuid=_uuid(random),
            session_uuid=_uuid(random),
            gpus=random.randint(1, MAX_GPUS),
            start_unix_micros=start_unix_micros,
            period_micros=round(1e6 / rate_hz),
        )
        for index, kind in enumerate(kinds)
    ]


def _uuid(random: Random) -> str:
    return str(uuid.UUID(int=random.getrandbits(128), version=4))
