"""Values in SQL, for statements that a user is to see and to run again."""


def literal(text: str) -> str:
    """Return `text` as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"
