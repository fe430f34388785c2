"""Invitations to runs of several nodes, for agents with the same job.

All of them derive the same invitation from the job and its command. The run's name ends with its digest, so
the collector can verify an invitation, but anyone who reads the run's name in the store cannot make one.
"""

import hashlib
from collections.abc import Sequence

# Of a digest in a run's name: 80 bits, too many to find another text for it.
_CHARACTERS = 20


def make_invitation(parts: Sequence[str]) -> str:
    """Return the invitation for these texts, and no others: the job and its command."""
    joined = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(joined.encode("utf-8", "replace")).hexdigest()


def invited_run(name: str, invitation: str) -> str:
    """Return the identity of the run with this name and invitation."""
    return f"{name}-{hashlib.sha256(invitation.encode()).hexdigest()[:_CHARACTERS]}"


def is_invited(run_id: str, invitation: str) -> bool:
    """Return whether `invitation` is for the run `run_id`."""
    return run_id == invited_run(run_id.rpartition("-")[0], invitation)
