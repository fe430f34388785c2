"""Our commands in forks of a process that has imported them: to import takes most commands longer than their work.

What a command does is the same, but that its process has the command line of the one that it was forked from.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

_BIN = Path(sys.executable).parent

# The package of each command; below it are the modules that it imports when they are needed, as those named here.
COMMANDS = {"gpuagent": "gpuagent.cli", "collector": "gpuagent_collector.cli"}
_LATER = ("gpuagent.agent", "gpuagent_collector.server.app", "gpuagent_collector.query.remote")

# More than the variables of an environment have.
_MESSAGE_BYTES = 1 << 20

_PID = struct.Struct("q")


class ForkedProcess(subprocess.Popen[str]):
    """A command that runs in a fork, and is used as a process that was started."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], folder: Path, files: Sequence[int]
    ) -> None:
        """Start a command of ours in a session of its own; `files` are its standard input, output and error."""
        self.args = list(words)
        self.returncode: int | None = None
        self.stdin = self.stdout = self.stderr = None
        self._news, writable = os.pipe()
        try:
            asked = {"words": self.args, "environment": dict(environment), "folder": str(folder), "umask": _umask()}
            socket.send_fds(_start_server()[0], [json.dumps(asked).encode()], [*files, writable])
        finally:
            os.close(writable)
        self.pid = self._read()

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._news], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not select.select([self._news], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        if self.returncode is None:
            self._end()
        assert self.returncode is not None
        return self.returncode

    def _end(self) -> None:
        self.returncode = self._read()
        os.close(self._news)

    def _read(self) -> int:
        read = os.read(self._news, _PID.size)
        assert read, "the process that forks has ended"
        return int(_PID.unpack(read)[0])


def _umask() -> int:
    os.umask(umask := os.umask(0o077))
    return umask


def run_forked(
    words: Sequence[str], environment: Mapping[str, str], folder: Path, timeout_seconds: float
) -> "subprocess.CompletedProcess[str]":
    """Run a command of ours to its end, and return how it ended and what it printed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, Path(os.devnull).open() as nothing:
        process = ForkedProcess(words, environment, folder, [nothing.fileno(), out.fileno(), err.fileno()])
        try:
            code = process.wait(timeout_seconds)
        except BaseException:
            process.kill()
            raise
        printed, said = (_text(each) for each in (out, err))
    return subprocess.CompletedProcess(list(words), code, printed, said)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n")


@cache
def _start_server() -> tuple[socket.socket, "subprocess.Popen[bytes]"]:
    """Start the process that forks, once; this one ends it, and so counts as its own what the commands took."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MESSAGE_BYTES)
    with theirs:
        code = f"from tests.support.forking import serve; serve({theirs.fileno()})()"
        server = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    atexit.register(_end_server, os.getpid(), ours, server)
    return ours, server


def _end_server(starter: int, channel: socket.socket, server: "subprocess.Popen[bytes]") -> None:
    if os.getpid() != starter:
        return
    channel.shutdown(socket.SHUT_RDWR)  # what this process has forked may have it open too
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        server.kill()


def serve(descriptor: int) -> Callable[[], Any]:
    """Fork for each command that is asked for; return, in the fork alone, what runs the command."""
    for package in map(importlib.import_module, COMMANDS.values()):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    for name in _LATER:
        importlib.import_module(name)
    gc.freeze()
    ended, wakeup = os.pipe()
    os.set_blocking(ended, False)
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    news: dict[int, int] = {}
    with socket.socket(fileno=descriptor) as channel:
        while True:
            ready = select.select([descriptor, ended], [], [])[0]
            if ended in ready:
                os.read(ended, 4096)
                _report_ends(news)
            if descriptor not in ready:
                continue
            message, files, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, 4)
            if not message:
                sys.exit()
            if (pid := os.fork()) == 0:
                channel.detach()
                return _become(json.loads(message), files)
            os.write(files[3], _PID.pack(pid))
            news[pid] = files[3]
            for file in files[:3]:
                os.close(file)


def _report_ends(news: dict[int, int]) -> None:
    while news:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        file = news.pop(pid)
        with contextlib.suppress(BrokenPipeError):  # nobody waits for it
            os.write(file, _PID.pack(os.waitstatus_to_exitcode(status)))
        os.close(file)


def _become(asked: Mapping[str, Any], files: Sequence[int]) -> Callable[[], Any]:
    """Make this fork the process of a command, and return what runs it."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    os.closerange(3, 4096)
    os.umask(asked["umask"])
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    program, *words = asked["words"]
    sys.argv = [str(_BIN / program), *words]
    sys.orig_argv[:] = [sys.executable, *sys.argv]
    sys.path[0] = str(_BIN)
    main = importlib.import_module(COMMANDS[program]).main
    return lambda: sys.exit(main())
