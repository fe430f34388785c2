"""When several ranks end a phase that lasts a given time: all of them after the same step."""

import math

from gpuagent_workloads.training.ranks import Ranks


class AgreedEnd:
    """Asked after each step whether it was the last. Rank 0's clock decides.

    Ranks exchange a message only after steps 1, 2, 4, 8, …, and a few times near the end, which rank 0 foresees from
    the steps so far. In between nobody waits for anybody, except in the steps' own collectives.
    """

    def __init__(self, ranks: Ranks, least_seconds: float) -> None:
        self._ranks, self._least_seconds = ranks, least_seconds
        self._agree_at = 1

    def __call__(self, steps: int, seconds: float) -> bool:
        """Tell whether `steps` that took `seconds` are enough."""
        if steps < self._agree_at:
            return False
        more = int(self._ranks.agree(self._steps_more(steps, seconds)))
        self._agree_at = steps + more
        return more == 0

    def _steps_more(self, steps: int, seconds: float) -> int:
        """Return after how many more steps to ask again; 0: it is enough."""
        if seconds >= self._least_seconds:
            return 0
        if seconds <= 0:
            return steps
        return max(1, min(steps, math.floor(steps * (self._least_seconds - seconds) / seconds)))
