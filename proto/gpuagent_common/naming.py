"""Names that users give, and the warning of an identity that several machines have."""

from collections.abc import Sequence

from gpuagent_common.errors import MisuseError
from gpuagent_common.text import harmless

MAX_NAME_CHARACTERS = 100

# The end of the experiment's name of runs that warm up: no answer counts them, unless they are asked for.
WARM_UP = "-warm-up"

# Labels that gpuagent itself gives to runs, and what makes them.
RESERVED_LABELS = {"imported": "`collector import`", "until": "the key of that name in an experiment file"}


def check_name(text: str, option: str) -> str:
    """Return a valid name. Raises MisuseError where it is blank, too long, or not printable; names `option`."""
    if not text.strip():
        raise MisuseError(f"{option} must not be blank")
    if len(text) > MAX_NAME_CHARACTERS or not text.isprintable():
        raise MisuseError(f"{option} takes up to {MAX_NAME_CHARACTERS} printable characters")
    return text


def check_label(name: str, value: str, option: str) -> None:
    """Check a label that a user gives.

    Raises MisuseError: a part is blank, too long, or not printable, or the label is gpuagent's own; names `option`.
    """
    for text in (name, value):
        check_name(text, option)
    if name in RESERVED_LABELS:
        raise MisuseError(f"{option}: the label {name!r} is made by {RESERVED_LABELS[name]}; choose another name")


# Of hostnames in a line.
_MOST_NAMES = 3


def shared_identity(hostnames: Sequence[str]) -> str:
    """Return the words on other machines that have a node's identity, with the remedy."""
    names = ", ".join(map(harmless, hostnames[:_MOST_NAMES])) + (", …" if len(hostnames) > _MOST_NAMES else "")
    remedy = "on one, `gpuagent start --node-id NAME`, or renew /etc/machine-id"
    return f"another machine ({names}) has the same identity; {remedy}"
