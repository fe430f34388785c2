"""Tokens: scopes, what each may reach, the file that has them, and who calls."""

import fcntl
import hashlib
import hmac
import json
import os
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

from gpuagent_collector.times import utc_now
from gpuagent_collector.trust.private_files import check_private, make_private_folder, write_private
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.waiting import waiting_for


class Scope(Enum):
    """The set of actions that a token allows."""

    # Writes the data of its own node, and nothing else.
    AGENT = "agent"
    # Reads: SQL, pages, metrics.
    VIEWER = "viewer"
    # Everything: reads, launches, cancels, and writes for any node. The owner's token has it.
    OPERATOR = "operator"


# Of a platform or a label; those of agents are not longer.
_MAX_CHARACTERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """A filter of sessions by the platform and labels of their agents. It never shows all of them.

    Attributes:
        platforms: a session's platform is one of these; empty: any platform.
        labels: keys and values; for each key a session has one of its values.
    """

    platforms: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not self.platforms and not self.labels:
            raise ValueError("a reach needs platforms or labels: without both it would show everything")

    @classmethod
    def parse(cls, platforms: Sequence[str], labels: Sequence[str]) -> "Reach | None":
        """Return the reach of any number of `--platform` and `--label K=V`; None: neither was given.

        Raises MisuseError: a label is not K=V, or a text is blank, too long or not printable.
        """
        pairs = [label.partition("=") for label in labels]
        if not all(key and equals for key, equals, _ in pairs):
            raise MisuseError("--label takes K=V, such as team=vision")
        for text in (*platforms, *labels):
            if not text.strip() or not text.isprintable() or len(text) > _MAX_CHARACTERS:
                raise MisuseError(f"--platform and --label take up to {_MAX_CHARACTERS:,} printable characters")
        if not platforms and not labels:
            return None
        chosen = {(key, value) for key, _, value in pairs}
        return cls(platforms=tuple(sorted(set(platforms))), labels=tuple(sorted(chosen)))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Reach":
        """Read a reach that `asdict` wrote. Raises ValueError, TypeError, KeyError: it is not a reach."""
        platforms, labels = value["platforms"], [(key, text) for key, text in value["labels"]]
        texts = [*platforms, *(text for label in labels for text in label)]
        if not isinstance(platforms, list) or not all(isinstance(text, str) for text in texts):
            raise TypeError("platforms and labels must be lists of texts")
        return cls(platforms=tuple(platforms), labels=tuple(labels))

    def values_by_key(self) -> Mapping[str, Sequence[str]]:
        """Return the shown values of each label key."""
        values: dict[str, list[str]] = defaultdict(list)
        for key, value in self.labels:
            values[key].append(value)
        return values

    def __str__(self) -> str:
        """Return the filter for people."""
        labels = [f"{key}={' or '.join(values)}" for key, values in self.values_by_key().items()]
        platforms = [f"platform {' or '.join(self.platforms)}"] if self.platforms else []
        return ", ".join([*platforms, *(f"label {label}" for label in labels)])


_SECRET_BYTES = 32
MAX_NAME_CHARACTERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """The record of a token, without the token itself.

    Attributes:
        sha256: hash of the token, in hexadecimal digits.
        created_at: UTC.
        expires_at: UTC; None: it does not expire.
        node: the hostname or UUID that an agent's token was made for; None: the first node that uses it.
        bound_to: the UUID of the first node that used it; None: not used yet.
        any_node: whether any node may use an agent's token, as the nodes of a DaemonSet do.
        reach: the part of the store that a viewer's token shows; None: everything.
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
        """Return whether it has expired."""
        return self.expires_at is not None and self.expires_at <= now


def digest(token: str) -> str:
    """Return the hash of a token.

    A single SHA-256 would be wrong for a password, but a token has 256 random bits and cannot be guessed at any speed.
    Salt and slow hashing would only slow each call down. Timing a look-up by hash reveals nothing either: similar
    hashes do not come from similar tokens.
    """
    return hashlib.sha256(token.encode()).hexdigest()


class TokenFile:
    """The tokens in one file, changed by commands and re-read by a running collector. Any thread may use it."""

    def __init__(self, path: Path, now: Callable[[], datetime] = utc_now) -> None:
        self.path = path
        self._now = now
        # The file's state when it was read, and its tokens: one value, because several threads replace it.
        self._cached: tuple[tuple[int, ...] | None, dict[str, Token]] = (None, {})

    @classmethod
    def beside(cls, owner_s: Path) -> "TokenFile":
        """Return the file that belongs to the owner's token file."""
        return cls(owner_s.with_name(f"{owner_s.name}s.json"))

    def all(self) -> Sequence[Token]:
        """Return all tokens, expired ones included. Raises GpuAgentError: the file cannot be used."""
        return tuple(self._current().values())

    def find(self, token: str) -> Token | None:
        """Return the record of this token; None: unknown or revoked. Raises GpuAgentError: the file cannot be used."""
        return self._current().get(digest(token))

    def is_valid(self, token: Token) -> bool:
        """Return whether a token is neither revoked nor expired by now.

        Raises GpuAgentError: the file cannot be used.
        """
        return self.snapshot()(token)

    def snapshot(self) -> Callable[[Token], bool]:
        """Read the file once; return a function that checks whether a token is valid at this moment.

        Raises GpuAgentError: the file cannot be used.
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
        """Make a token, store its hash, and return it: it is never shown again.

        Raises:
            MisuseError: the name is taken or malformed, or the options do not suit the scope.
            GpuAgentError: the file cannot be used.
        """
        for text, option in ((name, "--name"), (node or name, "--node")):
            if not text.strip() or not text.isprintable() or len(text) > MAX_NAME_CHARACTERS:
                raise MisuseError(f"{option} takes up to {MAX_NAME_CHARACTERS} printable characters")
        if scope is not Scope.AGENT and (node or any_node):
            raise MisuseError(f"--node and --any-node are for the scope agent, not {scope.value}; leave them out")
        if node and any_node:
            raise MisuseError("--node and --any-node contradict each other; give one of them")
        if reach is not None and scope is not Scope.VIEWER:
            raise MisuseError("--platform and --label are for the scope viewer; leave them out")
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
        with self._edit() as tokens:
            if any(each.name == name for each in tokens):
                raise MisuseError(f"there is a token {name} already; choose another --name, or revoke that one")
            tokens.append(token)
        return secret

    def revoke(self, name: str) -> Token:
        """Delete a token's record; the collector then ends its streams.

        Raises:
            MisuseError: there is no token with this name.
            GpuAgentError: the file cannot be used.
        """
        with self._edit() as tokens:
            found = next((token for token in tokens if token.name == name), None)
            if found is None:
                raise MisuseError(f"there is no token {name}; `collector tokens list` shows all tokens")
            tokens.remove(found)
        return found

    def bind(self, token: Token, node_uuid: str) -> str | None:
        """Bind an agent's token to the first node that uses it; return the reason of a refusal, None on success.

        A node that is bound to another token stays so, unless both were made for the same --node: the holder of a new
        token could otherwise impersonate any node. Raises GpuAgentError: the file cannot be used.
        """
        with self._edit() as tokens:
            if token not in tokens:
                return "it has been bound meanwhile, or revoked"
            for each in tokens:
                is_other = each.sha256 != token.sha256 and (each.node is None or each.node != token.node)
                if each.bound_to == node_uuid and is_other:
                    return f"token {each.name} is bound to this node; revoke it, or make both with the same --node"
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
        """Return time, inode, size and mode of the file; None: there is no file."""
        try:
            state = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise GpuAgentError(f"cannot read {self.path}: {error.strerror}") from error
        return state.st_mtime_ns, state.st_ino, state.st_size, state.st_mode

    @contextmanager
    def _edit(self) -> Iterator[list[Token]]:
        """Yield the tokens for changes, and write them on exit; one process at a time."""
        make_private_folder(self.path.parent)
        try:
            # For its owner alone: a lock that another user holds would block agents.
            lock = os.fdopen(os.open(self.path.with_name(f".{self.path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise GpuAgentError(f"cannot write beside {self.path}: {error.strerror}") from error
        with lock:
            try:
                with waiting_for("collector", f"another process that changes {self.path}"):
                    fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError as error:
                raise GpuAgentError(
                    f"cannot lock {lock.name}: {error.strerror}; name a token file on a local disk: --token-file FILE"
                ) from error
            before = _read(self.path) if self.path.exists() else []
            tokens = before.copy()
            yield tokens
            if tokens != before:
                lines = ",\n".join(json.dumps(_as_json(token)) for token in tokens)
                write_private(self.path, f'{{"tokens": [\n{lines}\n]}}\n'.encode())
                # Agents bind their tokens one by one: reading a long file again for each would delay all others.
                self._cached = self._state(), {token.sha256: token for token in tokens}


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
        raise GpuAgentError(f"{path} is damaged; restore it from a backup") from error


def _token(values: dict[str, Any]) -> Token:
    times = {name: None if values[name] is None else datetime.fromisoformat(values[name]) for name in _TIMES}
    scope, reach = Scope(values["scope"]), values.get("reach")
    return Token(**(values | times | {"scope": scope, "reach": None if reach is None else Reach.from_json(reach)}))


_TIMES = ("created_at", "expires_at")


# Without the file's path, because the reader has no token.
UNREADABLE = "this collector cannot read its tokens; its log says why"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The holder of a call's token. `token` is the record of it in `file`; None: it is the owner's."""

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

        Raises GpuAgentError: the file cannot be used.
        """
        if hmac.compare_digest(token.encode(), self._owner_s):
            return Caller(name="owner", scope=Scope.OPERATOR)
        found = self._file.find(token) if self._file else None
        if found is None or self._file is None or not self._file.is_valid(found):
            return None
        return Caller(name=found.name, scope=found.scope, token=found, file=self._file)
