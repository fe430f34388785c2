"""Arrow's columns as plain Python values, the same in every format."""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from typing import Any, TypeAlias, cast

import pyarrow as pa

from gpuagent_common.text import harmless

# Shown to people where there is no value.
ABSENT = "–"

Column: TypeAlias = "pa.Array[Any]"
Value = None | bool | int | float | str | Decimal | list[Any] | dict[str, Any]

_LARGEST_EXACT = 2**53 - 1


def unique_names(names: Iterable[str]) -> list[str]:
    """Return `names` with a number after each repeated one: SQL allows two columns of one name."""
    taken: set[str] = set()
    unique = []
    for name in names:
        candidate, number = name, 1
        while candidate in taken:
            candidate, number = f"{name}_{number}", number + 1
        taken.add(candidate)
        unique.append(candidate)
    return unique


def iso_times(column: Column) -> Column:
    """Return a column of timestamps as ISO 8601 in UTC; those without a zone are in UTC already."""
    import pyarrow.compute as pc  # only here: it takes a tenth of the time of a short answer

    # Arrow keeps UTC behind a zone, so dropping the zone leaves UTC without asking for a database of zones. Putting
    # the letters in is several times as fast as strftime.
    naive: Column = column.cast(pa.timestamp(column.type.unit))
    texts: Column = naive.cast(pa.string())
    return pc.replace_substring_regex(texts, r"^(\S+-\d\d) (.+)$", r"\1T\2Z")


def plain_rows(batch: pa.RecordBatch) -> Iterator[Sequence[Value]]:
    """Yield the rows with times as ISO 8601 text, bytes as hexadecimal text, and None where there is no value."""
    return zip(*(plain_column(column) for column in batch.columns), strict=True)


def plain_column(column: Column) -> list[Value]:
    """Return a column's values in the form of `plain_rows`."""
    if pa.types.is_timestamp(column.type):
        column = iso_times(column)
    try:
        values: list[Value] = column.to_pylist()
    except (OverflowError, ValueError):  # times that Python cannot hold: a year beyond 9999 or before 1; nanoseconds
        texts: Column = column.cast(_with_text_for_times(column.type))
        values = texts.to_pylist()
    return values if is_simple(column.type) else [_plain(value) for value in values]


def _with_text_for_times(kind: pa.DataType) -> pa.DataType:
    """Return a type with text in place of dates and times."""
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return pa.string()
    if pa.types.is_map(kind):
        return pa.map_(_with_text_for_times(kind.key_type), _with_text_for_times(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_with_text_for_times(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_text_for_times(field.type)) for field in kind])
    return kind


def as_json(value: Value) -> str:
    """Return `value` as JSON that every reader takes without loss.

    Whole numbers beyond ±(2^53 - 1), infinities and NaN become strings, as in protobuf's JSON: many readers would
    round the former, and JSON has no notation for the others.
    """
    return json.dumps(_json_safe(value), ensure_ascii=False, allow_nan=False)


def cell(value: Value) -> str:
    """Return a value as people read it: – for no value, fractions with six significant digits."""
    match value:
        case None:
            return ABSENT
        case bool() | list() | dict():
            return harmless(as_json(value))
        case float() | Decimal():
            number = float(value)
            return f"{number:.0f}" if 1e6 <= abs(number) < 1e15 else f"{number:.6g}"
    return harmless(str(value))


def _json_safe(value: Value) -> Value:
    match value:
        case list():
            return [_json_safe(each) for each in value]
        case dict():
            return {key: _json_safe(each) for key, each in value.items()}
        case bool():
            return value
        case int() if abs(value) > _LARGEST_EXACT:
            return str(value)
        case float() if not isfinite(value):
            return str(value)
        case Decimal():
            return float(value)
    return value


def is_simple(kind: pa.DataType) -> bool:
    """Return whether Arrow's values of this type are text, truth values, or binary numbers."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string)
    return any(test(kind) for test in tests)


def is_number(kind: pa.DataType) -> bool:
    """Return whether Arrow's values of this type are numbers."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _plain(value: Any) -> Value:
    match value:
        case list() if value and all(type(entry) is tuple for entry in value):  # how Arrow gives a map
            return {str(key): _plain(each) for key, each in value}
        case list():
            return [_plain(each) for each in value]
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case bytes():
            return value.hex()
        case pa.MonthDayNano():
            return _iso_duration(value)
        case datetime():
            return value.isoformat().removesuffix("+00:00") + "Z"
        case date() | time():
            return value.isoformat()
        case Decimal() if value == value.to_integral_value():
            return int(value)
    return cast("Value", value)


def _iso_duration(value: pa.MonthDayNano) -> str:
    days = "".join(f"{number}{unit}" for number, unit in ((value.months, "M"), (value.days, "D")) if number)
    seconds = f"T{value.nanoseconds / 1e9:.15g}S" if value.nanoseconds or not days else ""
    return f"P{days}{seconds}"
