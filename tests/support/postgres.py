"""A real PostgreSQL on a Unix socket, of Debian's package, with a database for each test that wants one."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER = "lake"

# Where Debian keeps the server's programs, which are not on the path.
_PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))

_SETTINGS = ("max_connections=200",)
# Nothing of a test outlives it.
_QUICK = ("fsync=off", "autovacuum=off")


class Postgres:
    """A server with its files in a short path of its own: a socket's name has 107 bytes at most."""

    def __init__(self, folder: Path, *, durable: bool = False, address: str = "") -> None:
        """`address` has no password: of a network on this machine alone."""
        self.folder = folder
        self._address = address
        self._settings = (f"listen_addresses={address}", *_SETTINGS, *(() if durable else _QUICK))
        self._databases = 0

    def start(self) -> None:
        options = " ".join(f"-c {each}" for each in (*self._settings, f"unix_socket_directories={self.folder}"))
        self._control("start", "-o", options, "-l", str(self.folder / "log"))

    def stop(self) -> None:
        """End the server at once: whoever is connected is cut off."""
        self._control("stop", "-m", "immediate")

    def database(self) -> str:
        """Make an empty database, and return what libpq takes to find it."""
        self._databases += 1
        name = f"lake{self._databases}"
        self.psql(f"CREATE DATABASE {name}")
        return f"host={self._address or self.folder} user={USER} dbname={name}"

    def psql(self, statement: str, database: str = "postgres") -> str:
        """Execute a statement as the server's owner, and return what it gives, unaligned."""
        command = ["psql", "-h", str(self.folder), "-U", USER, "-d", database, "-qAtc", statement]
        return _run(command).strip()

    def initialise(self) -> None:
        self._as_owner("initdb", "-D", str(self._data), "-U", USER, "--auth=trust", "--no-sync")
        if self._address:
            with (self._data / "pg_hba.conf").open("a") as rules:
                rules.write("host all all all trust\n")

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _control(self, *arguments: str) -> None:
        self._as_owner("pg_ctl", "-D", str(self._data), "-w", *arguments)

    def _as_owner(self, program: str, *arguments: str) -> None:
        """The server refuses to be root's."""
        _run([str(_PROGRAMS[-1] / program), *arguments], user=_owner())


@contextmanager
def postgres(*, durable: bool = False, address: str = "") -> Iterator[Postgres]:
    """Run a server for as long as the block lasts.

    Args:
        durable: what it commits is on the disk, as in earnest.
        address: where it listens beside its socket.
    """
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        folder = Path(name)
        if owner := _owner():
            shutil.chown(folder, owner)
        server = Postgres(folder, durable=durable, address=address)
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _owner() -> str | None:
    if os.getuid() != 0:
        return None
    return next(name for name in ("postgres", "nobody") if name in {each.pw_name for each in pwd.getpwall()})


def _run(command: list[str], user: str | None = None) -> str:
    """Run a command; its output goes through a file, since a server that it starts would keep a pipe open."""
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(
            command, user=user, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd="/", check=False
        )
        output.seek(0)
        text = output.read()
    assert done.returncode == 0, f"{command} gave {done.returncode}:\n{text}"
    return text
