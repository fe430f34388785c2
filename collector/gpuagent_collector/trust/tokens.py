"""The tokens that a collector made beside its owner's: named, scoped, bound to nodes, ending, revocable."""

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from gpuagent_collector.times import utc_now
from gpuagent_collector.trust.private_files import check_private, make_private_folder, write_private
from gpuagent_collector.trust.reach import Reach
from gpuagent_collector.trust.scopes import Scope
from gpuagent_common.errors import GpuAgentError, MisuseError

_SECRET_BYTES = 32
MAX_NAME_CHARACTERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What is kept of a token; the token itself is not.

    Attributes:
        sha256: hash of the token, in hexadecimal digits.
        created_at: UTC.
        expires_at: UTC; None: it does not end by itself.
        node: the node's name or UUID that an agent's token was made for; None: whichever uses it first.
        bound_to: the UUID of the node that used it first; None: none has yet.
        any_node: an agent's token that every node may use, as the nodes of a DaemonSet do.
        reach: what a viewer's token shows; None: everything.
    """

    name: str
    scope: Scope
    sha256: str
    created_at: datetime
    expires_at: datetime | None = None
    node: str | None = None
    bound_to: str | None = None
    any_node: bool = False
    reach: Reach | None = None

    def has_expired(self, now: datetime) -> bool:
        """Tell whether its time is over."""
        return self.expires_at is not None and self.expires_at <= now


def digest(token: str) -> str:
    """Return what is kept of a token.

    A single SHA-256 is right here and would be wrong for a password: a token has 256 random bits, so that there is
    nothing to guess at any speed, and salt and slow hashing would only make each call dearer. For the same reason a
    look-up by hash tells who measures its time nothing: nearby hashes do not come from nearby tokens.
    """
    return hashlib.sha256(token.encode()).hexdigest()


class TokenFile:
    """The tokens in one file, which commands change and a running collector follows. Any thread may use it."""

    def __init__(self, path: Path, now: Callable[[], datetime] = utc_now) -> None:
        self.path = path
        self._now = now
        # The file's state when it was read, and what it held: one value, since several threads replace it.
        self._cached: tuple[tuple[int, ...] | None, dict[str, Token]] = (None, {})

    @classmethod
    def beside(cls, owner_s: Path) -> "TokenFile":
        """Return the one that belongs to the owner's token file."""
        return cls(owner_s.with_name(f"{owner_s.name}s.json"))

    def all(self) -> Sequence[Token]:
        """Return all tokens, those that have expired as well.

        Raises:
            GpuAgentError: the file cannot be used.
        """
        return tuple(self._current().values())

    def find(self, token: str) -> Token | None:
        """Return what is kept of this token; None: there is no such token, or none any more.

        Raises:
            GpuAgentError: the file cannot be used.
        """
        return self._current().get(digest(token))

    def is_valid(self, token: Token) -> bool:
        """Tell whether a token that was found is neither revoked nor over by now.

        Raises:
            GpuAgentError: the file cannot be used.
        """
        return self.snapshot()(token)

    def snapshot(self) -> Callable[[Token], bool]:
        """Look at the file once; return what tells whether a token that was found is valid at this moment.

        Raises:
            GpuAgentError: the file cannot be used.
        """
        tokens, now = self._current(), self._now()
        return lambda token: token.sha256 in tokens and not token.has_expired(now)

    def create(
        self,
        scope: Scope,
        name: str,
        *,
        node: str | None = None,
        any_node: bool = False,
        reach: Reach | None = None,
        lifetime: timedelta | None = None,
    ) -> str:
        """Make a token, keep its hash, and return it: it is never shown again.

        Raises:
            MisuseError: the name is taken or makes no sense, or a node is named for what is no agent's token, or a
                reach for what is no viewer's.
            GpuAgentError: the file cannot be used.
        """
        _check(scope, name, node, any_node=any_node)
        if reach is not None and scope is not Scope.VIEWER:
            raise MisuseError("--platform and --label limit what a viewer sees; give them with that scope only")
        secret = f"gpuagent_{scope.value}_{secrets.token_urlsafe(_SECRET_BYTES)}"
        now = self._now()
        token = Token(
            name=name,
            scope=scope,
            sha256=digest(secret),
            created_at=now,
            expires_at=None if lifetime is None else now + lifetime,
            node=node,
            any_node=any_node,
            reach=reach,
        )
        with self._changing() as tokens:
            if any(each.name == name for each in tokens):
                raise MisuseError(f"there is a token {name} already; choose another --name, or revoke that one")
            tokens.append(token)
        return secret

    def revoke(self, name: str) -> Token:
        """Forget a token: it opens nothing from now on, and what it has open is ended.

        Raises:
            MisuseError: there is none of this name.
            GpuAgentError: the file cannot be used.
        """
        with self._changing() as tokens:
            found = next((token for token in tokens if token.name == name), None)
            if found is None:
                raise MisuseError(f"there is no token {name}; `collector tokens list` shows those there are")
            tokens.remove(found)
        return found

    def bind(self, token: Token, node_uuid: str) -> str | None:
        """Bind an agent's token to the first node that uses it; return why it cannot be, None where it is.

        A node that another token is bound to stays that token's, unless both were made for the same --node: who has a
        new token could otherwise write as any node.

        Raises:
            GpuAgentError: the file cannot be used.
        """
        with self._changing() as tokens:
            if token not in tokens:
                return "it is bound by now, or has been revoked"
            rival = next((each for each in tokens if each.bound_to == node_uuid and _keeps_off(each, token)), None)
            if rival is not None:
                return f"token {rival.name} is bound to this node; revoke that one, or make both with the same --node"
            tokens[tokens.index(token)] = replace(token, bound_to=node_uuid)
        return None

    def _current(self) -> dict[str, Token]:
        state = self._state()
        seen, tokens = self._cached
        if state != seen:
            tokens = {} if state is None else {token.sha256: token for token in _read(self.path)}
            self._cached = state, tokens
        return tokens

    def _state(self) -> tuple[int, ...] | None:
        """Return what changes with the file's content; None: there is no file."""
        try:
            state = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise GpuAgentError(f"cannot read {self.path}: {error.strerror}") from error
        return state.st_mtime_ns, state.st_ino, state.st_size, state.st_mode

    @contextmanager
    def _changing(self) -> Iterator[list[Token]]:
        """Yield the tokens as they are, and keep them as they were made; one process at a time does."""
        make_private_folder(self.path.parent)
        try:
            # Nobody else may open it: a lock that another user holds would keep agents out.
            lock = os.fdopen(os.open(self.path.with_name(f".{self.path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise GpuAgentError(f"cannot write beside {self.path}: {error.strerror}") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = _read(self.path) if self.path.exists() else []
            tokens = before.copy()
            yield tokens
            if tokens != before:
                write_private(self.path, _document(tokens))
                # Agents bind their tokens as they come: reading a long file again for each would hold up all others.
                self._cached = self._state(), {token.sha256: token for token in tokens}


def _check(scope: Scope, name: str, node: str | None, *, any_node: bool) -> None:
    for text, option in ((name, "--name"), (node or name, "--node")):
        if not text.strip() or not text.isprintable() or len(text) > MAX_NAME_CHARACTERS:
            raise MisuseError(f"{option} takes up to {MAX_NAME_CHARACTERS} printable characters")
    if scope is not Scope.AGENT and (node or any_node):
        raise MisuseError(f"--node and --any-node are for agents' tokens; a token of scope {scope.value} has no node")
    if node and any_node:
        raise MisuseError("--node and --any-node contradict each other; give one of them")


def _keeps_off(bound: Token, newcomer: Token) -> bool:
    return bound.sha256 != newcomer.sha256 and (bound.node is None or bound.node != newcomer.node)


def _document(tokens: Sequence[Token]) -> bytes:
    """Return the file's content, a line for each token."""
    lines = ",\n".join(json.dumps(_as_json(token)) for token in tokens)
    return f'{{"tokens": [\n{lines}\n]}}\n'.encode()


def _as_json(token: Token) -> dict[str, Any]:
    values = {each.name: getattr(token, each.name) for each in fields(token)}
    values |= {"scope": token.scope.value, "reach": None if token.reach is None else asdict(token.reach)}
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}


def _read(path: Path) -> list[Token]:
    try:
        check_private(path)
        return [_token(each) for each in json.loads(path.read_text())["tokens"]]
    except OSError as error:
        raise GpuAgentError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise GpuAgentError(f"{path} holds no tokens as `collector tokens` writes them") from error


def _token(values: dict[str, Any]) -> Token:
    times = {name: None if values[name] is None else datetime.fromisoformat(values[name]) for name in _TIMES}
    scope, reach = Scope(values["scope"]), values.get("reach")
    return Token(**(values | times | {"scope": scope, "reach": None if reach is None else Reach.from_json(reach)}))


_TIMES = ("created_at", "expires_at")
