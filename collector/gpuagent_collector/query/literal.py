"""Values in SQL, for statements that a user reads and runs again."""

from collections.abc import Iterable, Sequence

import duckdb

from gpuagent_collector.query.execute import Parameter
from gpuagent_common.text import harmless


def literal(value: Parameter) -> str:
    """Return `value` as an SQL literal."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, Iterable):
        return f"[{', '.join(map(literal, value))}]"
    return "NULL" if value is None else str(value)


def with_values(sql: str, parameters: Sequence[Parameter]) -> str:
    """Return a statement with its `?` filled in, ready for `collector query`."""
    # A question mark within a text is no parameter: only one that starts a token is.
    encoded = sql.encode()
    marks = [start for start, _ in duckdb.tokenize(sql) if encoded[start : start + 1] == b"?"]
    starts = [0, *(mark + 1 for mark in marks)]
    texts = [encoded[start:end].decode() for start, end in zip(starts, [*marks, len(encoded)], strict=True)]
    values = [harmless(literal(value)) for value in parameters]
    return "".join(text + value for text, value in zip(texts, [*values, ""], strict=True))


def list_text(values: Iterable[str | int]) -> str:
    """Return a list as a text for `CAST(? AS VARCHAR[])`.

    DuckDB looks for pandas at each value of a list that it is given, which takes 40 µs where there is none.
    """
    texts = list(map(str, values))
    if texts and not {'"', "\\"}.intersection("".join(texts)):
        return '["' + '", "'.join(texts) + '"]'
    escaped = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "[" + ", ".join(f'"{text}"' for text in escaped) + "]"
