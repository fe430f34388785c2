"""Real processes of ours, started and stopped: what a user would have running."""

import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import IO, Any, TypeVar
from unittest import mock

import pytest

from gpuagent_collector.cli import main as collector
from gpuagent_collector.query.reader import open_reader
from tests.support.forking import COMMANDS, ForkedProcess, run_forked
from tests.support.stores import put_store

BIN = Path(sys.executable).parent

# How long to wait for something that has to come; only a broken program needs it.
LIMIT_SECONDS = 240.0

# Of a command that ends by itself.
_RUN_SECONDS = LIMIT_SECONDS * 2

Found = TypeVar("Found")


def until(condition: Callable[[], Found | None], what: str, seconds: float = LIMIT_SECONDS) -> Found:
    """Return the first true value of `condition`; fail with `what` when it does not come.

    Asking takes a fifth of the time at most: what is awaited needs the processor more.
    """
    began = asked = time.monotonic()
    while not (value := condition()):
        now = time.monotonic()
        if now > began + seconds:
            raise AssertionError(f"{what} did not come within {seconds:.0f} s")
        time.sleep(min(1.0, max(0.02, 4 * (now - asked))))
        asked = time.monotonic()
    return value


def without_waits(said: str) -> str:
    """Return what a command said without what it waited for, which it tells on a busy machine only."""
    return re.sub(r"(?m)^(gpuagent|collector): waiting for .*\n", "", said)


class Node:
    """A folder with a collector's store and token and an agent's spool; runs our commands with those.

    Use it as a context manager: whatever ends the block, a skipped test too, ends the processes started here.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "runs.duckdb"
        self.environment = {
            **os.environ,
            "GPUAGENT_TOKEN_FILE": str(folder / "token"),
            "GPUAGENT_SPOOL_DIR": str(folder / "spool"),
            "GPUAGENT_RUNTIME_DIR": str(folder),
        }
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> "Node":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, *command: str, code: int = 0, folder: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Run one of our commands to its end, in `folder` if given; fail unless it ends with `code`."""
        done = self._run(command, folder or self.folder)
        assert done.returncode == code, f"{command} gave {done.returncode}:\n{done.stdout}\n{done.stderr}"
        done.stderr = without_waits(done.stderr)
        return done

    def _run(self, command: Sequence[str], folder: Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(BIN / command[0]), *command[1:]],
            env=self.environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_RUN_SECONDS,
            check=False,
        )

    def collector(self, *words: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        """Run a command of `collector` in this process: to start another takes longer than most answers."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        with pytest.MonkeyPatch.context() as patch, mock.patch.dict(os.environ, self.environment, clear=True):
            patch.chdir(self.folder)
            patch.setattr(sys, "argv", ["collector", *words])
            with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
                collector()
        printed, said = (each.buffer.getvalue().decode() for each in (out, err))
        assert int(ended.value.code or 0) == code, f"{words} gave {ended.value.code}:\n{printed}\n{said}"
        return subprocess.CompletedProcess(words, code, printed, without_waits(said))

    def run_each(self, *commands: Sequence[str]) -> list[tuple[int, str, str]]:
        """Run commands of `gpuagent` one after the other, and return how each ended."""
        done = [self._run(("gpuagent", *words), self.folder) for words in commands]
        return [(each.returncode, each.stdout, without_waits(each.stderr)) for each in done]

    def without_collector(self) -> None:
        """Name a collector that does not exist, and a token for it."""
        self.environment["GPUAGENT_COLLECTOR"] = "127.0.0.1:1"
        token = self.folder / "token"
        token.touch(mode=0o600)
        token.write_text("a-token-that-nobody-looks-at")

    def ask(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows of a SELECT, asked from this process: a command would take longer to start than to ask."""
        address, token_file = (self.environment[f"GPUAGENT_{name}"] for name in ("COLLECTOR", "TOKEN_FILE"))
        with closing(open_reader(address=address, token_file=Path(token_file), store=None)) as reader:
            rows: list[dict[str, Any]] = reader.sql(sql).to_pylist()
        return rows

    def start(self, *command: str, log: str) -> "subprocess.Popen[str]":
        """Start one of our commands in the background, in a session of its own; its output goes to the file `log`."""
        with (self.folder / log).open("w") as output:
            process = self._start(command, output)
        self._processes.append(process)
        return process

    def _start(self, command: Sequence[str], output: IO[str]) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [str(BIN / command[0]), *command[1:]],
            env=self.environment,
            cwd=self.folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def start_agent(self, *options: str, log: str = "agent.log") -> "subprocess.Popen[str]":
        """Start the agent and wait until it samples."""
        process = self.start("gpuagent", "start", *options, log=log)
        until(lambda: "sampling" in (self.folder / log).read_text(), "the agent's first line")
        return process

    def serve(
        self, listen: str = "127.0.0.1:0", options: Sequence[str] = (), program: Sequence[str] = ("collector",)
    ) -> "subprocess.Popen[str]":
        """Start the collector and wait until it listens; commands find it from then on.

        Its store is a copy of an empty one where there is none: to make one takes longer. `--store` in `options` names
        one that it makes itself.
        """
        if "--store" not in options:
            put_store(str(self.store))
        process = self.start(
            *(*program, "serve", "--listen", listen, "--store", str(self.store), *options), log="collector.log"
        )
        address = until(lambda: self._address(process), "the collector's first line")
        assert address
        self.environment["GPUAGENT_COLLECTOR"] = address
        return process

    def _address(self, process: "subprocess.Popen[str]") -> str | None:
        text = (self.folder / "collector.log").read_text()
        assert process.poll() is None, text
        return next((word for word in text.split() if word.startswith("127.0.0.1:")), None) if "\n" in text else None

    def stop(self, process: "subprocess.Popen[str]", number: signal.Signals = signal.SIGTERM) -> int:
        """End a process that was started here and return its exit code; kill it, and fail, when it does not end."""
        self._processes.remove(process)
        if process.poll() is None:
            process.send_signal(number)
        try:
            return process.wait(timeout=LIMIT_SECONDS)
        except BaseException:
            process.kill()
            process.wait()
            raise

    def close(self) -> None:
        """End whatever still runs, the last started first, also where one does not."""
        with ExitStack() as every:
            for process in self._processes:
                every.callback(self.stop, process)


class ForkingNode(Node):
    """A node whose commands are forks: for tests of what they do, not of how they start."""

    def _run(self, command: Sequence[str], folder: Path) -> "subprocess.CompletedProcess[str]":
        if command[0] not in COMMANDS:
            return super()._run(command, folder)
        return run_forked(command, self.environment, folder, _RUN_SECONDS)

    def _start(self, command: Sequence[str], output: IO[str]) -> "subprocess.Popen[str]":
        if command[0] not in COMMANDS:
            return super()._start(command, output)
        with Path(os.devnull).open() as nothing:
            files = [nothing.fileno(), output.fileno(), output.fileno()]
            return ForkedProcess(command, self.environment, self.folder, files)
