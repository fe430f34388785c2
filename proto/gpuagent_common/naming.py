"""Names given by users: platforms, labels."""

from gpuagent_common.errors import MisuseError

MAX_NAME_CHARACTERS = 100


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
