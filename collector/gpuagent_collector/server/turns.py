"""The turns of viewers' statements, so that what they make at once fits into memory."""

import threading
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field

from gpuagent_collector.query.execute import BATCH_ROWS, Execution
from gpuagent_common.errors import MisuseError

# Of what a step makes, where a statement runs on several threads: 1.9 measured for an answer on its way to its reader,
# 1.3 for all else.
_COPIES = 2

# A statement of at most this share of the memory never waits.
_SMALL_SHARE = 1 / 16

_LOOK_SECONDS = 0.05


@dataclass(slots=True, kw_only=True)
class Turns:
    """Memory that statements share. Any thread may use it.

    Attributes:
        memory_bytes: of all statements at once; None: without a limit.
        threads: DuckDB's.
    """

    memory_bytes: int | None = None
    threads: int = 1
    _changed: threading.Condition = field(default_factory=threading.Condition)
    # What those that run may take, and those that wait, first come first, with their holders.
    _taken: dict[Execution, tuple[Hashable, int]] = field(default_factory=dict)
    _waiting: dict[Execution, Hashable] = field(default_factory=dict)
    # Holders by their last turn. There is one for each token.
    _last: dict[Hashable, None] = field(default_factory=dict)

    def wait(self, execution: Execution, holder: Hashable, row_bytes: int | None) -> None:
        """Wait until there is memory for a statement that makes this of a row (None: all); `end` gives it back.

        Of several holders, the one that has least comes first, and of those the one whose last turn is longest ago.

        Raises:
            MisuseError: there never is.
            GpuAgentError: the execution must stop; see `Execution.check`.
        """
        needed = self.memory_bytes or 0
        if row_bytes is not None:
            needed = row_bytes * BATCH_ROWS * self.threads * _COPIES
        with self._changed:
            if self.memory_bytes is not None and needed > self.memory_bytes:
                raise MisuseError(
                    f"2,048 rows of this statement can take {needed / 2**20:,.0f} MiB, and the collector has "
                    f"{max(0, self.memory_bytes) / 2**20:,.0f} MiB for it; ask for shorter or fewer values"
                )
            self._waiting[execution] = holder
            try:
                while not self._may_start(execution, needed):
                    self._changed.wait(_LOOK_SECONDS)
                    execution.check()
                execution.check()  # one that has ended meanwhile would keep its turn
                self._taken[execution] = (holder, needed)
                if not self._is_small(needed):
                    self._last.pop(holder, None)
                    self._last[holder] = None
            finally:
                del self._waiting[execution]
                self._changed.notify_all()

    def end(self, execution: Execution) -> None:
        """Give the memory of a statement back, if it has any."""
        with self._changed:
            self._taken.pop(execution, None)
            self._changed.notify_all()

    def largest(self) -> Execution | None:
        """Return the statement that may take most now; None: only small ones run."""
        with self._changed:
            taken = {execution: needed for execution, (_, needed) in self._taken.items() if not self._is_small(needed)}
            return max(taken, key=lambda each: taken[each], default=None)

    def is_large(self, execution: Execution) -> bool:
        """Return whether a statement runs that may take more than a small share."""
        with self._changed:
            return execution in self._taken and not self._is_small(self._taken[execution][1])

    def _is_small(self, needed: int) -> bool:
        return self.memory_bytes is None or needed <= self.memory_bytes * _SMALL_SHARE

    def _may_start(self, execution: Execution, needed: int) -> bool:
        if self.memory_bytes is None or self._is_small(needed):
            return True
        places = {holder: place for place, holder in enumerate(self._last)}
        held: Counter[Hashable] = Counter()
        for holder, taken in self._taken.values():
            held[holder] += taken
        order = {each: (held[holder], places.get(holder, -1)) for each, holder in self._waiting.items()}
        first = min(order, key=lambda each: order[each])
        return execution is first and needed + held.total() <= self.memory_bytes
