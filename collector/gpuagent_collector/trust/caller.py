"""Callers: whose token a request carries, and whether it is valid."""

import hmac
from dataclasses import dataclass

from gpuagent_collector.trust.reach import Reach
from gpuagent_collector.trust.scopes import Scope
from gpuagent_collector.trust.tokens import Token, TokenFile
from gpuagent_common.errors import GpuAgentError

# What is said to who has shown none: not where they lie.
UNREADABLE = "this collector cannot read its tokens; its log says why"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Whose token a call carries.

    Attributes:
        token: what is kept of it, in `file`; None: it is the owner's.
    """

    name: str
    scope: Scope
    token: Token | None = None
    file: TokenFile | None = None

    @property
    def reach(self) -> Reach | None:
        """What of the store is shown to it; None: everything."""
        return None if self.token is None else self.token.reach

    def is_valid(self) -> bool:
        """Tell whether the token still opens anything. When the file of tokens cannot be read, none does."""
        try:
            return self.token is None or self.file is None or self.file.is_valid(self.token)
        except GpuAgentError:
            return False


class Tokens:
    """Knows the owner's token and those in the file beside it. Any thread may use it."""

    def __init__(self, owner_s: str, file: TokenFile | None) -> None:
        self._owner_s = owner_s.encode()
        self._file = file

    def holder(self, token: str) -> Caller | None:
        """Return whose token this is; None: nobody's, or nobody's any more.

        Raises:
            GpuAgentError: the file cannot be used.
        """
        if hmac.compare_digest(token.encode(), self._owner_s):
            return Caller(name="owner", scope=Scope.OPERATOR)
        found = self._file.find(token) if self._file else None
        if found is None or self._file is None or not self._file.is_valid(found):
            return None
        return Caller(name=found.name, scope=found.scope, token=found, file=self._file)
