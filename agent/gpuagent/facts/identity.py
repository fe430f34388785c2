"""Which node this is: the same answer after a restart of the agent, another one on every other node."""

import uuid

from gpuagent.facts.container import detect_container
from gpuagent.facts.surroundings import Surroundings

# Made up once for gpuagent, so that its identities say nothing to others.
_NAMESPACE = uuid.UUID("f2a3b3a4-1329-47d2-9ab5-e94261f376b1")

_MACHINE_ID_FILES = ("etc/machine-id", "var/lib/dbus/machine-id")


def node_uuid(surroundings: Surroundings, override: str | None = None) -> str | None:
    """Return the node's identity, or None where it has none: then make one and keep it.

    1. What the user says: a UUID as it is, any other text hashed.
    2. The machine ID, hashed, since it should not be shown to others (machine-id(5)).
    3. In a container the machine ID is the image's, and the same on every host, unless it was mounted in on purpose.
       There the boot ID takes its place, hashed: all containers of one host share it and no other host has it, but the
       node is another one after it was restarted.
    """
    if override is not None:
        return _from_user(override)
    is_contained = detect_container(surroundings) != "none"
    if not is_contained or _is_mounted_from_host(surroundings):
        machine_id = next((text for path in _MACHINE_ID_FILES if (text := _identity(surroundings.text(path)))), None)
        if machine_id is not None:
            return _hashed("machine", machine_id)
    boot_id = _identity(surroundings.proc_text("sys/kernel/random/boot_id").strip()) if is_contained else None
    return None if boot_id is None else _hashed("boot", boot_id)


def _from_user(override: str) -> str:
    try:
        return str(uuid.UUID(override))
    except ValueError:
        return _hashed("user", override)


def _is_mounted_from_host(surroundings: Surroundings) -> bool:
    mounts = [line.split(" ") for line in surroundings.proc_text("self/mountinfo").splitlines()]
    return any(
        fields[4] == "/etc/machine-id" and fields[3].endswith("/etc/machine-id") for fields in mounts if len(fields) > 4
    )


def _identity(text: str | None) -> str | None:
    """Return a machine or boot ID without its hyphens; None for one that is not set yet ("uninitialized")."""
    try:
        return uuid.UUID(text or "").hex
    except ValueError:
        return None


def _hashed(kind: str, identity: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, f"{kind}:{identity}"))
