"""Which sessions have a stream open, as far as this process knows."""

from collections.abc import Callable, Iterable
from datetime import datetime


class Presence:
    """The server writes it, the writer's thread reads it; every step is one operation on a dict."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._since = now()
        self._left: dict[int, datetime | None] = {}

    def arrived(self, session_ids: Iterable[int]) -> None:
        """A stream of these sessions is open."""
        for session_id in session_ids:
            self._left[session_id] = None

    def left(self, session_ids: Iterable[int]) -> None:
        """The last stream of these sessions is gone."""
        for session_id in session_ids:
            self._left[session_id] = self._now()

    def begin_again(self) -> None:
        """Silence counts from now on: the store could not be written, so nothing could be heard of anybody."""
        self._since = self._now()

    def connected(self, session_id: int) -> bool:
        """Tell whether a stream of this session is open."""
        return session_id in self._left and self._left[session_id] is None

    def last_seen(self, session_id: int) -> datetime:
        """Return when the session's stream ended, and no time before the store could be written."""
        return max(self._left.get(session_id) or self._since, self._since)
