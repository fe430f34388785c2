"""Whether the tokens of open streams still open anything, looked up once for all that comes at a time."""

import asyncio
from collections.abc import Callable

from gpuagent_collector.trust.caller import Caller
from gpuagent_collector.trust.tokens import Token, TokenFile
from gpuagent_common.errors import GpuAgentError


class Validity:
    """Looks at a file of tokens once in each turn of the event loop, however many agents' messages the turn brings.

    What a turn brings was there before it looked: nothing that was sent after its token was revoked passes.
    """

    def __init__(self) -> None:
        self._snapshots: dict[TokenFile, Callable[[Token], bool]] = {}

    def is_valid(self, holder: Caller) -> bool:
        """Tell whether a caller's token still opens anything. When the file of tokens cannot be read, none does."""
        if holder.token is None or holder.file is None:
            return True
        return self._snapshot(holder.file)(holder.token)

    def _snapshot(self, file: TokenFile) -> Callable[[Token], bool]:
        snapshot = self._snapshots.get(file)
        if snapshot is None:
            snapshot = self._snapshots[file] = _look(file)
            asyncio.get_running_loop().call_soon(self._snapshots.clear)
        return snapshot


def _look(file: TokenFile) -> Callable[[Token], bool]:
    try:
        return file.snapshot()
    except GpuAgentError:
        return lambda _token: False
