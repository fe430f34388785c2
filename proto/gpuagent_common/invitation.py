"""Who may take part in a run of several nodes: agents that were told the same job.

From the job and what is to run all of them make the same invitation. The run's name ends with its digest, so a
collector that is shown an invitation can tell that it fits, and who reads the run's name in the store cannot make one.
"""

import hashlib
from collections.abc import Sequence

# Of a digest in a run's name: 80 bits, for which nobody finds another text.
_CHARACTERS = 20


def make_invitation(parts: Sequence[str]) -> str:
    """Return the invitation that follows from these texts and no others: the job, and what is to run."""
    told = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()


def invited_run(name: str, invitation: str) -> str:
    """Return the identity of the run of this name that `invitation` is for."""
    return f"{name}-{hashlib.sha256(invitation.encode()).hexdigest()[:_CHARACTERS]}"


def is_invited(run_id: str, invitation: str) -> bool:
    """Tell whether `invitation` is for the run `run_id`."""
    return run_id == invited_run(run_id.rpartition("-")[0], invitation)
