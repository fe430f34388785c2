"""The server of a run: started, awaited, and ended with it."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpuagent_common.errors import MisuseError
from gpuagent_common.own_module import SAFE_PATH, end_with_parent, module_command
from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.serve_load import Config
from gpuagent_workloads.suite.serve_load.exchange import Endpoint, ask

_POLL_SECONDS = 0.05
_GRACE_SECONDS = 8.0


@contextmanager
def served(config: Config, reporter: Reporter) -> Iterator[str]:
    """Yield the address of the server, started here if the run has one, which then ends on exit.

    Reports how long it took to listen, and to be ready.

    Raises:
        MisuseError: its program does not exist.
        WorkloadError: it ended, or was not ready in time.
    """
    if config.serve is None:
        yield str(config.url)
        return
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    words = [word.replace("{port}", str(port)) for word in shlex.split(config.serve)]
    if words[:3] == ["{python}", "-m", "gpuagent_workloads"]:
        words = [*module_command(sys.executable, "gpuagent_workloads"), *words[3:]]
    else:
        words = [word.replace("{python}", sys.executable) for word in words]
    folder = reporter.directory or Path(tempfile.mkdtemp(prefix="serve-load-"))
    output = folder / "server.log"
    with output.open("ab") as file:
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={name: value for name, value in os.environ.items() if (name, value) != SAFE_PATH},
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - there are no threads here
            )
        except OSError as error:
            raise MisuseError(f"cannot start the server {words[0]!r}: {error.strerror}") from error
    try:
        url = f"http://127.0.0.1:{port}"
        _await_ready(process, url, port, config, reporter, output)
        try:
            yield url
        except WorkloadError as error:
            if process.poll() is None:
                raise
            raise WorkloadError(f"the server ended while it was measured: {_last_line(output)}") from error
        if process.poll() is not None:
            raise WorkloadError(f"the server ended while it was measured: {_last_line(output)}")
    finally:
        _end(process)


def _await_ready(
    process: "subprocess.Popen[bytes]", url: str, port: int, config: Config, reporter: Reporter, output: Path
) -> None:
    started = time.monotonic()
    listens = False
    while True:
        if process.poll() is not None:
            raise WorkloadError(f"the server ended with code {process.returncode}: {_last_line(output)}")
        if time.monotonic() > started + config.ready_timeout:
            raise WorkloadError(f"{config.ready} did not answer 200 within {config.ready_timeout:g} s; see {output}")
        if not listens and _accepts(port):
            listens = True
            reporter.result("server_listen_seconds", time.monotonic() - started, unit="s")
        if listens:
            with suppress(WorkloadError):
                if ask(Endpoint(url=url), config.ready, timeout_seconds=5).status == 200:
                    break
        time.sleep(_POLL_SECONDS)
    reporter.result("server_ready_seconds", time.monotonic() - started, unit="s")


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _last_line(output: Path) -> str:
    lines = [line.strip() for line in output.read_text(errors="replace").splitlines() if line.strip()]
    return f"{lines[-1]:.200}; its output: {output}" if lines else "it printed nothing"


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the server and everything in its session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
