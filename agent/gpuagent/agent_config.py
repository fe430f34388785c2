"""What an agent's user decides, and which node and spool follow from it."""

import contextlib
import os
import platform as host
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuagent import facts, locations
from gpuagent.delivery.uplink import Delivery
from gpuagent_common.connection import TlsFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """What an agent's user decides."""

    collector: str
    token_file: Path
    platform: str
    # What the collector's certificate must come from; None: the connection is not encrypted.
    tls: TlsFiles | None = None
    # The Python that has the workloads package.
    python: str
    labels: Mapping[str, str] = field(default_factory=dict)
    rate_hz: float = 10.0
    # The spool's folder; None: the first of the usual places that is on a local disk.
    spool: Path | None = None
    spool_limit_bytes: int = 512 * 1024 * 1024
    # The node's identity where the one found would not do.
    node_id: str | None = None
    node_name: str = field(default_factory=host.node)
    # How long a stopping agent waits for the collector.
    delivery: Delivery = field(default_factory=Delivery)
    per_core: bool = False
    allow_commands: bool = False


def find_place(config: AgentConfig) -> tuple[Path, str]:
    """Return the same as `find_node`, for an agent."""
    return find_node(config.spool, config.node_id)


def find_node(spool: Path | None, node_id: str | None) -> tuple[Path, str]:
    """Return the spool's folder, made if need be, and the node's identity; `None` for what is not given.

    The identity is as given, as the node tells it, or one made up once and kept beside the spool.

    Raises:
        GpuAgentError: there is no folder that can be used.
    """
    mounts = Path("/proc/self/mounts").read_text()
    folder = locations.spool_directory(spool, environment=os.environ, mounts=mounts)
    locations.make_private(folder)
    return folder, facts.node_uuid(facts.Surroundings(), node_id) or _made_up_uuid(folder / "node-uuid")


def _made_up_uuid(file: Path) -> str:
    with contextlib.suppress(FileExistsError), file.open("x") as made:
        made.write(f"{uuid.uuid4()}\n")
    return file.read_text().strip()
