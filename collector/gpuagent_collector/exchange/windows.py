"""Stretches of time on nodes."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Window:
    """A stretch of time on one node, in microseconds since the Unix epoch; `end_micros` is the first one behind it."""

    node_id: int
    start_micros: int
    end_micros: int

    def overlaps(self, other: "Window") -> bool:
        """Return whether both have a moment on the same node in common."""
        return (
            self.node_id == other.node_id
            and self.start_micros < other.end_micros
            and other.start_micros < self.end_micros
        )


def joined(windows: Iterable[Window]) -> list[Window]:
    """Return the same time in as few windows as possible: sorted, none touching another."""
    result: list[Window] = []
    for window in sorted(windows):
        last = result[-1] if result else None
        if last and last.node_id == window.node_id and window.start_micros <= last.end_micros:
            result[-1] = Window(
                node_id=last.node_id,
                start_micros=last.start_micros,
                end_micros=max(last.end_micros, window.end_micros),
            )
        else:
            result.append(window)
    return result


def without(windows: Iterable[Window], others: Iterable[Window]) -> list[Window]:
    """Return the time of `windows` that is in none of `others`."""
    remaining = joined(windows)
    for other in joined(others):
        remaining = [piece for window in remaining for piece in _cut(window, other)]
    return remaining


def _cut(window: Window, other: Window) -> Iterable[Window]:
    if not window.overlaps(other):
        yield window
        return
    if window.start_micros < other.start_micros:
        yield Window(node_id=window.node_id, start_micros=window.start_micros, end_micros=other.start_micros)
    if other.end_micros < window.end_micros:
        yield Window(node_id=window.node_id, start_micros=other.end_micros, end_micros=window.end_micros)
