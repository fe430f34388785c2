"""The identity of the node: the same after a restart of the agent, another one on every other node."""

import uuid
from dataclasses import dataclass

from gpuagent.facts.layers import detect_container
from gpuagent.facts.surroundings import Surroundings

# Made up once for gpuagent, so that its identities reveal nothing to others.
_NAMESPACE = uuid.UUID("f2a3b3a4-1329-47d2-9ab5-e94261f376b1")

_MACHINE_ID_FILES = ("etc/machine-id", "var/lib/dbus/machine-id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine, of which several may have one identity.

    Attributes:
        boot_id: changes when the machine restarts; None: unknown.
        in_container: whether this is a container, which has a hostname of its own.
    """

    boot_id: str | None = None
    in_container: bool = False


def find_machine(surroundings: Surroundings) -> Machine:
    """Return the machine; nothing is raised."""
    boot_id = surroundings.proc_text("sys/kernel/random/boot_id").strip() or None
    return Machine(boot_id=boot_id, in_container=detect_container(surroundings) != "none")


def node_uuid(surroundings: Surroundings, override: str | None = None) -> str | None:
    """Return the node's identity, or None where it has none: the caller then makes one and keeps it.

    1. The user's choice: a UUID as it is, any other text hashed.
    2. The machine ID, hashed, since it should not be shown to others (machine-id(5)).
    3. In a container the machine ID is the image's, and the same on every host, unless it was mounted in on purpose.
       There the boot ID replaces it, hashed: all containers of one host share it and no other host has it, but a
       restarted node is another one.
    """
    if override is not None:
        try:
            return str(uuid.UUID(override))
        except ValueError:
            return _hash("user", override)
    is_contained = detect_container(surroundings) != "none"
    is_mounted = any(
        mount.point == "/etc/machine-id" and mount.root.endswith("/etc/machine-id") for mount in surroundings.mounts()
    )
    if not is_contained or is_mounted:
        found = (_parse_identity(surroundings.text(path)) for path in _MACHINE_ID_FILES)
        if machine_id := next(filter(None, found), None):
            return _hash("machine", machine_id)
    boot_id = _parse_identity(surroundings.proc_text("sys/kernel/random/boot_id").strip()) if is_contained else None
    return None if boot_id is None else _hash("boot", boot_id)


def _parse_identity(text: str | None) -> str | None:
    """Return a machine or boot ID without its hyphens; None for one that is not set yet ("uninitialized")."""
    try:
        return uuid.UUID(text or "").hex
    except ValueError:
        return None


def _hash(kind: str, identity: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, f"{kind}:{identity}"))
