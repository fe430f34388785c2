"""Callers, identified by the token of a request."""

import hmac
from dataclasses import dataclass

from gpuagent_collector.trust.reach import Reach
from gpuagent_collector.trust.scopes import Scope
from gpuagent_collector.trust.tokens import Token, TokenFile
from gpuagent_common.errors import GpuAgentError

# Without the file's path, because the reader has no token.
UNREADABLE = "this collector cannot read its tokens; its log says why"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The holder of a call's token.

    Attributes:
        token: the record of it in `file`; None: it is the owner's.
    """

    name: str
    scope: Scope
    token: Token | None = None
    file: TokenFile | None = None

    @property
    def reach(self) -> Reach | None:
        """The part of the store that it can see; None: everything."""
        return None if self.token is None else self.token.reach

    def is_valid(self) -> bool:
        """Return whether the token is still valid. No token is while the file of tokens cannot be read."""
        try:
            return self.token is None or self.file is None or self.file.is_valid(self.token)
        except GpuAgentError:
            return False


class Tokens:
    """The owner's token and those in the file beside it. Any thread may use it."""

    def __init__(self, owner_s: str, file: TokenFile | None) -> None:
        self._owner_s = owner_s.encode()
        self._file = file

    def holder(self, token: str) -> Caller | None:
        """Return the caller with this token; None: unknown, expired or revoked.

        Raises:
            GpuAgentError: the file cannot be used.
        """
        if hmac.compare_digest(token.encode(), self._owner_s):
            return Caller(name="owner", scope=Scope.OPERATOR)
        found = self._file.find(token) if self._file else None
        if found is None or self._file is None or not self._file.is_valid(found):
            return None
        return Caller(name=found.name, scope=found.scope, token=found, file=self._file)
