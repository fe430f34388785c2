"""The settings of an agent, and the node and spool that follow from them."""

import contextlib
import os
import platform as host
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from gpuagent import facts, locations
from gpuagent.delivery.uplink import Delivery
from gpuagent.environments.environment import Home


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig(Home):
    """The settings of an agent that its user chooses."""

    # The Python that has the workloads package.
    python: str
    # The folder of the spool; None: the first usual place on a local disk.
    spool: Path | None = None
    spool_limit_bytes: int = 512 * 1024 * 1024
    # The identity of the node; None: the machine's own.
    node_id: str | None = None
    node_name: str = field(default_factory=host.node)
    # The wait of a stopping agent for the collector.
    delivery: Delivery = field(default_factory=Delivery)
    # What is recorded of the owners of work on the node, by `gpuagent start` alone: full, ids or off.
    owners: str = "off"
    allow_commands: bool = False
    # The collector of an agent beside the node's own, which delivers to another; None: this is the node's own.
    beside: str | None = None
    # Whether this agent records the image of a run and when it was asked for, or the machine that asked for it does.
    records_requests: bool = True


def find_place(config: AgentConfig) -> tuple[Path, str]:
    """Return the same as `find_node`, for an agent."""
    return find_node(config.spool, config.node_id)


def find_node(spool: Path | None, node_id: str | None) -> tuple[Path, str]:
    """Return the spool's absolute folder, created if missing, and the node's identity.

    The identity is as given, as the machine has it, or a random one that is stored in the spool's folder. Raises
    GpuAgentError: no folder can be used.
    """
    mounts = Path("/proc/self/mounts").read_text()
    # Absolute: commands in other folders are given paths in it.
    folder = locations.spool_directory(spool, environment=os.environ, mounts=mounts).absolute()
    locations.make_private(folder)
    found = facts.node_uuid(facts.Surroundings(), node_id)
    if found:
        return folder, found
    file = folder / "node-uuid"
    with contextlib.suppress(FileExistsError), file.open("x") as created:
        created.write(f"{uuid.uuid4()}\n")
    return folder, file.read_text().strip()
