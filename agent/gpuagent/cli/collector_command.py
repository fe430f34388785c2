"""The `collector` command, where it is installed beside the agent, and a collector that lasts as long as a command."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpuagent_common.connection import host_and_port
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.own_module import end_with_parent
from gpuagent_common.waiting import waiting_for

if TYPE_CHECKING:
    from gpuagent.agent_config import AgentConfig

_CONNECT_SECONDS = 2.0

# Usually it takes one or two to start.
_SILENT_SECONDS = 5.0

# A collector that takes longer for the shortest query is busy.
_ANSWER_SECONDS = 20.0


def find_collector_command() -> str | None:
    """Return the path of the program `collector`; None: it is not installed here."""
    return shutil.which("collector", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")


def connection_words(config: "AgentConfig") -> list[str]:
    """Return the options by which `collector` reaches the agent's collector."""
    given: dict[str, Path | None] = {"--token-file": config.token_file}
    if config.tls:
        given |= {"--ca-file": config.tls.ca, "--client-cert": config.tls.certificate, "--client-key": config.tls.key}
    files = [word for option, path in given.items() if path for word in (option, str(path))]
    return ["--collector", config.collector, *files]


def is_reachable(addresses: str) -> bool:
    """Return whether something listens at one of these addresses, separated by commas."""
    for address in addresses.split(","):
        with contextlib.suppress(OSError, UnicodeError):
            socket.create_connection(host_and_port(address) or ("", 0), timeout=_CONNECT_SECONDS).close()
            return True
    return False


def why_refused(config: "AgentConfig") -> str | None:
    """Return why a query of this user fails; None: it does not, or takes long, or `collector` is not installed."""
    program = find_collector_command()
    if program is None:
        return None
    words = [program, "query", "sql", "SELECT 1", *connection_words(config)]
    try:
        asked = subprocess.run(words, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return None
    reason = asked.stderr.strip().rpartition("\n")[2].removeprefix("collector: ")
    return reason if asked.returncode else None


@contextlib.contextmanager
def own_collector(store: str, token_file: Path) -> Iterator[str]:
    """Start a collector, yield its address, and end it once it has stored what it received.

    Raises GpuAgentError: it is not installed, or does not start, such as where another one has the store.
    """
    program = find_collector_command()
    if program is None:
        raise GpuAgentError(
            "no collector listens, and this installation has none; name one with --collector HOST:PORT, or install it"
        )
    command = [program, "serve", "--listen", "127.0.0.1:0", "--store", store, "--token-file", str(token_file)]
    with tempfile.TemporaryFile() as errors:
        # In a session of its own: a Ctrl-C in the terminal is for this process, which then ends it.
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            text=True,
            preexec_fn=partial(end_with_parent, signal.SIGTERM),  # noqa: PLW1509 - nothing else runs in this process yet
        )
        try:
            assert process.stdout  # noqa: S101 - a pipe
            with waiting_for("gpuagent", f"a collector to open {store}", after_seconds=_SILENT_SECONDS):
                words = process.stdout.readline().split()
            address = next((word for word in words if word.startswith("127.0.0.1:")), None)
            if address is None:
                process.wait()
                errors.seek(0)
                said = errors.read().decode(errors="replace").strip().splitlines()
                raise GpuAgentError((said or ["the collector did not start"])[-1].removeprefix("collector: "))
            yield address
        finally:
            process.terminate()
            with waiting_for("gpuagent", f"the collector to close {store}", after_seconds=_SILENT_SECONDS):
                process.wait()
