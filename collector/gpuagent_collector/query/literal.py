"""Values in SQL, for statements that a user is to see and to run again."""

from collections.abc import Sequence

import duckdb

from gpuagent_collector.output.text import harmless


def literal(text: str) -> str:
    """Return `text` as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def with_values(sql: str, parameters: Sequence[str]) -> str:
    """Return a statement with its `?` filled in, as it can be given to `collector query sql`."""
    # A question mark within a text is no parameter: only what begins a token is.
    encoded = sql.encode()
    marks = [start for start, _ in duckdb.tokenize(sql) if encoded[start : start + 1] == b"?"]
    starts = [0, *(mark + 1 for mark in marks)]
    texts = [encoded[start:end].decode() for start, end in zip(starts, [*marks, len(encoded)], strict=True)]
    values = [harmless(literal(value)) for value in parameters]
    return "".join(text + value for text, value in zip(texts, [*values, ""], strict=True))
