"""The warning that several machines have one identity, the same in every command."""

from collections.abc import Sequence

from gpuagent_common.text import harmless

# Of hostnames in a line.
_MOST_NAMES = 3


def shared_identity(hostnames: Sequence[str]) -> str:
    """Return the words on other machines that have a node's identity, with the remedy."""
    names = ", ".join(map(harmless, hostnames[:_MOST_NAMES])) + (", …" if len(hostnames) > _MOST_NAMES else "")
    remedy = "on one, `gpuagent start --node-id NAME`, or renew /etc/machine-id"
    return f"another machine ({names}) has the same identity; {remedy}"
