"""The `collector` command, where it is installed beside the agent."""

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuagent.agent_config import AgentConfig


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
