"""JSON in cells of the store: objects and lists as agents send them, or what was stored before that was checked."""

import json
from typing import Any

# Shown in the place of what cannot be read.
UNKNOWN = "unknown"

# Made once: `json.dumps` would make one for each text.
_ENCODER = json.JSONEncoder(allow_nan=False, ensure_ascii=False)

Scalar = None | bool | int | float | str


def parse_json(text: str) -> Any:
    """Return the value of a JSON text that every reader takes: without NaN, 1e999 or half of a surrogate pair.

    Raises ValueError: it is something else, or nested too deeply.
    """
    try:
        value = json.loads(text)
        _ENCODER.encode(value).encode()
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value


def read_object(text: str | None, name: str) -> dict[str, Any]:
    """Return the object in a cell, whose values are texts, numbers, truth values or None; empty: the cell is empty.

    Anything else is one value, `unknown`, under the cell's name: such a run has settings, so it must not pass for one
    without any.
    """
    value = parse_object(text)
    return {name: UNKNOWN} if value is None else value


def parse_object(text: str | None) -> dict[str, Any] | None:
    """Return the object in a cell as `read_object` does, but None for anything else."""
    try:
        value = parse_json(text or "{}")
    except ValueError:
        return None
    return value if is_flat_object(value) else None


def read_words(text: str | None) -> tuple[str, ...]:
    """Return the list of texts in a cell; empty: the cell is empty. Anything else is the one word `unknown`."""
    try:
        value = parse_json(text or "[]")
    except ValueError:
        return (UNKNOWN,)
    return tuple(value) if is_list_of_texts(value) else (UNKNOWN,)


def is_flat_object(value: Any) -> bool:
    """Return whether a value is an object without lists or objects in it."""
    return isinstance(value, dict) and all(isinstance(each, Scalar) for each in value.values())


def is_list_of_texts(value: Any) -> bool:
    """Return whether a value is a list of texts."""
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
