"""Names given by users: platforms, labels."""

from gpuagent_common.errors import MisuseError

MAX_NAME_CHARACTERS = 100

# Labels that gpuagent itself gives to runs, and what makes them.
RESERVED_LABELS = {"imported": "`collector import`", "until": "the key of that name in an experiment file"}


def check_name(text: str, option: str) -> str:
    """Return a valid name.

    Raises:
        MisuseError: it is blank, too long, or not printable; names `option`.
    """
    if not text.strip():
        raise MisuseError(f"{option} must not be blank")
    if len(text) > MAX_NAME_CHARACTERS or not text.isprintable():
        raise MisuseError(f"{option} takes up to {MAX_NAME_CHARACTERS} printable characters")
    return text


def check_label(name: str, value: str, option: str) -> None:
    """Check a label that a user gives.

    Raises:
        MisuseError: a part is blank, too long, or not printable, or the label is gpuagent's own; names `option`.
    """
    for text in (name, value):
        check_name(text, option)
    if name in RESERVED_LABELS:
        raise MisuseError(f"{option}: the label {name!r} is made by {RESERVED_LABELS[name]}; choose another name")
