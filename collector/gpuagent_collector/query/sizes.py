"""The size of what a function makes, from the sizes of its arguments. A function without a rule here is refused.

All sizes are in bytes. `LARGE` stands for a size that grows with the number of rows.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import duckdb

from gpuagent_collector.query.execute import Parameter
from gpuagent_common.errors import MisuseError

# A number, a time, a truth value; also what names something short, such as a month.
SMALL = 16
LARGE = math.inf

# An element of a list takes this beside its text.
_ELEMENT = 16

# The longest pattern of a regular expression.
_LONGEST_PATTERN = 200

# A class of Unicode counts as this many characters of a pattern.
_CLASS_CHARACTERS = 50
_CLASS = re.compile(r"\\[pP]|\[\[:")
_COUNT = re.compile(r"\{(\d+)(?:,(\d*))?\}")

# Bytes of a text that are compared with bytes of another in the time of reading one.
_COMPARED_BYTES = 48

Tree = Mapping[str, Any]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Types of one size. All others, such as BIGNUM, BIT, BLOB, UNION and VARIANT, are of any.
_SMALL_TYPES = frozenset(
    {
        *("BIGINT", "BOOLEAN", "DATE", "DECIMAL", "DOUBLE", "FLOAT", "HUGEINT", "INTEGER", "INTERVAL", "SMALLINT"),
        *("TIME", "TIME WITH TIME ZONE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP_MS", "TIMESTAMP_NS"),
        *("TIMESTAMP_S", "TINYINT", "UBIGINT", "UHUGEINT", "UINTEGER", "USMALLINT", "UTINYINT", "UUID"),
    }
)

_SMALL_RESULTS = """
SELECT lower(function_name) FROM duckdb_functions()
WHERE schema_name = 'main' AND internal AND function_type IN ('scalar', 'aggregate')
  AND NOT starts_with(function_name, '__internal')
GROUP BY ALL HAVING bool_and(list_contains(?, regexp_extract(return_type, '^[^(]*')))
"""

# Macros, and functions of which a variant for lists is the only one whose result is not small.
_ALSO_SMALL = _names(
    """
    ago array_length current_catalog current_database current_schema current_user date_add dayname days_in_month fdiv
    fmod format_bytes formatreadabledecimalsize formatreadablesize generate_subscripts geomean geometric_mean
    json_array_length json_exists json_type list_approx_count_distinct list_avg list_bool_and list_bool_or list_count
    list_entropy list_kurtosis list_mad list_product list_sem list_skewness list_stddev_pop list_stddev_samp list_sum
    list_var_pop list_var_samp map_contains_entry map_contains_value md5_number_lower md5_number_upper monthname
    round_even roundbankers session_user sum user version wavg weighted_avg xor & | << >> ~
    """
)

# The result is one of the arguments, or a part of one.
_PARTS = _names(
    """
    any_value approx_quantile arbitrary arg_max arg_max_null arg_min arg_min_null argmax argmin array_distinct
    array_extract array_first array_last array_reverse array_reverse_sort array_slice array_sort constant_or_null
    element_at first first_value greatest json_extract json_extract_path json_extract_path_text json_extract_string
    json_value lag last last_value lead least list_distinct list_element list_extract list_first list_last list_max
    list_median list_min list_mode list_reverse list_reverse_sort list_slice list_sort ltrim map_extract
    map_extract_value max max_by median min min_by mode nth_value nullif parse_dirname parse_filename quantile
    quantile_cont quantile_disc regexp_extract reverse rtrim struct_extract struct_extract_at substr substring trim
    unnest url_decode ->>
    """
)

# The result is at most this many times as long as all arguments together.
_SUMS: Mapping[str, int] = {
    **dict.fromkeys(("+", "-", "add", "subtract", "||", "array_cat", "array_concat", "concat", "concat_ws"), 1),
    **dict.fromkeys(("list_append", "list_cat", "list_concat", "list_pack", "list_prepend", "list_value", "map"), 1),
    **dict.fromkeys(("map_from_entries", "map_keys", "map_values", "row", "struct_pack", "array_append"), 1),
    **dict.fromkeys(("hex", "to_hex", "regexp_escape", "to_base64", "map_entries", "encode", "json"), 2),
    **dict.fromkeys(("lcase", "lower", "ucase", "upper", "url_encode", "strip_accents", "nfc_normalize"), 3),
    # A type has the names of a struct's fields.
    **dict.fromkeys(("array_to_string", "list_string_agg", "translate", "typeof"), 4),
    # A struct, if it is asked for a list of parts.
    **dict.fromkeys(("date_part", "datepart"), 4),
    # A control character takes six.
    **dict.fromkeys(("array_to_json", "json_array", "json_object", "json_quote", "row_to_json", "to_json"), 6),
    # Each character can become an element.
    **dict.fromkeys(("json_keys", "regexp_extract_all", "split", "split_part", "str_split", "string_split"), 17),
    **dict.fromkeys(("regexp_split_to_array", "str_split_regex", "string_split_regex", "string_to_array"), 17),
}

# Aggregates that keep what they have seen where DuckDB does not count it; the second only of texts, lists and structs.
_UNCOUNTED = _names(
    "approx_quantile approx_top_k entropy mad median mode quantile quantile_cont quantile_disc reservoir_quantile"
)
_UNCOUNTED_OF_LONG = frozenset({"last", "max", "min"})

# Aggregates whose result has something of each row.
GATHERING = frozenset({"array_agg", "group_concat", "list", "listagg", "string_agg"})

# Functions that take as many arguments as rows they keep; with one more they keep as many rows as that says.
_MOST_ARGUMENTS: Mapping[str, int] = {
    **dict.fromkeys(("arg_max", "arg_max_null", "arg_min", "arg_min_null", "argmax", "argmin", "max_by", "min_by"), 2),
    **dict.fromkeys(("max", "min"), 1),
}

# Functions that a window can have; over each row's window, others keep it all, or walk through it for each row.
_OVER_WINDOWS = _names(
    """
    any_value arg_max arg_min avg bool_and bool_or count count_if count_star cume_dist dense_rank first first_value
    lag last last_value lead max max_by mean min min_by nth_value ntile percent_rank rank row_number stddev stddev_pop
    stddev_samp sum var_pop var_samp variance
    """
)

# Functions that look for their second argument at each place of the first, or for each of its characters.
_SEARCHING = _names(
    """
    contains instr ltrim position replace rtrim split split_part str_split strpos string_split string_to_array
    translate trim ~~ !~~
    """
)

# The first takes the product of two values' sizes at each level of nesting, the others a microsecond an element.
_SLOW = _names("json_contains array_has_all array_has_any list_has_all list_has_any && <@ @>")

# Functions whose second argument is a regular expression.
_REGULAR = _names(
    """
    regexp_extract regexp_extract_all regexp_full_match regexp_matches regexp_replace regexp_split_to_array
    str_split_regex string_split_regex
    """
)

# DuckDB matches these by trying each place for each wildcard; without `_` and `ESCAPE`, LIKE is done in one pass.
_WILDCARDS: Mapping[str, str] = {
    **dict.fromkeys(("~~", "!~~", "~~*", "!~~*", "like_escape", "not_like_escape"), "%"),
    **dict.fromkeys(("ilike_escape", "not_ilike_escape"), "%"),
    "~~~": "*",
}
_IN_ONE_PASS = frozenset({"~~", "!~~"})

# `*` in a path makes a list of all that fits, for nested objects of the square of their size.
_PATHS = _names(
    """
    json_array_length json_exists json_extract json_extract_path json_extract_path_text json_extract_string json_keys
    json_type json_value ->>
    """
)

# They join lists too.
_ARITHMETIC = frozenset({"+", "-", "add", "subtract"})


@cache
def small_functions() -> frozenset[str]:
    """Return the names of functions whose result is of one size, whatever their arguments are."""
    with duckdb.connect(config={"enable_external_access": "false", "threads": 1}) as bare:
        rows = bare.execute(_SMALL_RESULTS, [sorted(_SMALL_TYPES)]).fetchall()
    return frozenset(name for (name,) in rows) - _SLOW | _ALSO_SMALL


def result_size(name: str, arguments: Sequence[Tree], sizes: Sequence[float]) -> float:
    """Return the most bytes that a function's result has.

    Args:
        name: the function's, in lower case.
        arguments: nodes of the syntax tree.
        sizes: of the arguments.

    Raises:
        MisuseError: nobody knows, or the call can take long.
    """
    _check_patterns(name, arguments)
    if len(arguments) > _MOST_ARGUMENTS.get(name, len(arguments)):
        raise MisuseError(f"with a token of scope viewer, {name} takes {_MOST_ARGUMENTS[name]} arguments")
    if name in small_functions():
        return SMALL
    if name in GATHERING:
        return LARGE
    if name in _PARTS:
        return max(sizes, default=SMALL)
    if name in _ARITHMETIC and max(sizes) <= SMALL:
        return SMALL
    if name in _SUMS:
        return _SUMS[name] * sum(sizes) + _ELEMENT * len(sizes)
    if name in _PRODUCTS:
        return _PRODUCTS[name](arguments, sizes)
    raise MisuseError(f"a token of scope viewer cannot call the function {name}; a token of scope operator can")


def read_size(name: str, arguments: Sequence[Tree], sizes: Sequence[float]) -> float:
    """Return what a function reads, in bytes that it passes once; LARGE sizes, which DuckDB gathers, are left out.

    Args:
        name: the function's, in lower case.
        arguments: nodes of the syntax tree, which `result_size` lets through.
        sizes: of the arguments.
    """
    known = [size for size in sizes if size < LARGE]
    if name in _REGULAR and known:
        return known[0] * _expanded_length(str(constant(arguments[1])))
    if name in _SEARCHING and len(known) > 1:
        return sum(known) + known[0] * known[1] / _COMPARED_BYTES
    return sum(known)


def _expanded_length(pattern: str) -> int:
    """Return at most the length of a pattern without counts: matching takes the product of it and the text's."""
    counts = [int(last or first) for first, last in _COUNT.findall(pattern)]
    classes = len(_CLASS.findall(pattern))
    length = max(1, len(pattern)) + _CLASS_CHARACTERS * classes
    if classes or "){" in pattern or "}{" in pattern:
        return length * math.prod(max(1, count) for count in counts)
    return length + sum(counts)  # each is of one character


def is_uncounted(name: str, sizes: Sequence[float]) -> bool:
    """Return whether an aggregate of arguments of these sizes keeps what DuckDB does not count."""
    return name in _UNCOUNTED or (name in _UNCOUNTED_OF_LONG and max(sizes, default=SMALL) > SMALL)


def check_window(node: Tree) -> None:
    """Reject a window function that keeps or passes all rows of the window for each row.

    Raises MisuseError: it does.
    """
    name = node["function_name"].lower()
    if name not in _OVER_WINDOWS or node.get("distinct"):
        raise MisuseError(f"with a token of scope viewer, {name} cannot be used so with OVER; use GROUP BY instead")


def cast_size(kind: Tree, size: float) -> float:
    """Return the most bytes of a value of this size after a cast to the type.

    Raises MisuseError: the type is not known, or is slow to make.
    """
    name, info = kind["id"], kind.get("type_info") or {}
    if name in _SMALL_TYPES:
        return SMALL
    if name == "VARCHAR":
        return 4 * size  # bytes that are no text become \xFF
    if (name, info.get("name", "").upper()) == ("UNBOUND", "JSON"):
        return 2 * size
    nested = [child["second"] for child in info.get("child_types") or ()]
    nested += [info["child_type"]] if name in {"LIST", "MAP"} else []
    if not nested or name not in {"LIST", "MAP", "STRUCT"}:
        raise MisuseError(f"a token of scope viewer cannot cast to the type {info.get('name') or name}")
    names = sum(len(child["first"].encode()) for child in info.get("child_types") or ())
    return names + sum(cast_size(child, size) for child in nested) + (1 + _ELEMENT) * size


def constant(node: Tree) -> object:
    """Return a constant's value; None for any other expression."""
    return node["value"].get("value") if node["class"] == "CONSTANT" else None


def _number(node: Tree) -> float:
    value = constant(node)
    return abs(value) if isinstance(value, int) else LARGE


def _series(arguments: Sequence[Tree], _: Sequence[float]) -> float:
    return 8 * sum(map(_number, arguments))


def _formatted(arguments: Sequence[Tree], sizes: Sequence[float]) -> float:
    # Each field is as wide as its argument, or as its format says: at most 999.
    fields = len(re.findall(r"[%{]", str(constant(arguments[0]))))
    return sizes[0] + fields * (sum(sizes) + 999)


# Functions that make more of their arguments: the bytes of the result, from the arguments' nodes and sizes.
_PRODUCTS: Mapping[str, Callable[[Sequence[Tree], Sequence[float]], float]] = {
    # Up to 1,000 characters.
    "bar": lambda *_: 3000,
    # Short, but longer than a number.
    **dict.fromkeys(("md5", "sha1", "sha256"), lambda *_: 64),
    "format": _formatted,
    "generate_series": _series,
    "left": lambda arguments, sizes: min(sizes[0], 4 * _number(arguments[1])),
    "lpad": lambda arguments, _: 4 * _number(arguments[1]),
    "printf": _formatted,
    "range": _series,
    # Each character of the replacement can stand for a group of all matched text.
    "regexp_replace": lambda _, sizes: (2 * sizes[0] + 1) * (1 + sizes[2]),
    "repeat": lambda arguments, sizes: sizes[0] * _number(arguments[1]),
    "replace": lambda _, sizes: sizes[0] * max(1.0, sizes[-1]),
    "right": lambda arguments, sizes: min(sizes[0], 4 * _number(arguments[1])),
    "rpad": lambda arguments, _: 4 * _number(arguments[1]),
    "strftime": lambda _, sizes: 32 * max(sizes),
}


def _check_patterns(name: str, arguments: Sequence[Tree]) -> None:
    if name in _REGULAR:
        pattern = constant(arguments[1])
        if not isinstance(pattern, str) or len(pattern) > _LONGEST_PATTERN:
            raise MisuseError(
                f"with a token of scope viewer, {name} takes a constant pattern of up to {_LONGEST_PATTERN} characters"
            )
    if name in _WILDCARDS:
        pattern, wildcard = constant(arguments[1]), _WILDCARDS[name]
        if not isinstance(pattern, str):
            raise MisuseError("with a token of scope viewer, LIKE, ILIKE and GLOB take a constant pattern")
        in_one_pass = name in _IN_ONE_PASS and "_" not in pattern
        if not in_one_pass and pattern.rstrip(wildcard).count(wildcard) > 1:
            raise MisuseError(
                f"with a token of scope viewer, this pattern has too many {wildcard}; use regexp_matches instead"
            )
    if name in _PATHS:
        for path in arguments[1:]:
            text = constant(path)
            if not isinstance(text, str | int) or "*" in str(text):
                raise MisuseError("with a token of scope viewer, a path into JSON is a constant without *")


def is_gathering(node: Tree) -> bool:
    """Return whether an expression gathers something of each row."""
    return node["class"] == "FUNCTION" and node["function_name"].lower() in GATHERING


def value_size(value: object) -> int:
    """Return the bytes of a constant."""
    return len(value.encode()) if isinstance(value, str) else max(SMALL, len(json.dumps(value)))


def elements(value: Parameter) -> Sequence[object]:
    """Return the elements of a list, also of one that is written as JSON; of any other value, the value alone."""
    elements: object = value
    if isinstance(value, str):
        try:
            elements = json.loads(value)
        except (ValueError, RecursionError):
            return [value]
    if not isinstance(elements, list | tuple):
        return [value]
    parts = [part for each in elements for part in (each.values() if isinstance(each, dict) else [each])]
    is_flat = not any(isinstance(part, list | dict) for part in parts)
    return elements if is_flat else [value]


def is_constant(node: Tree) -> bool:
    """Return whether an expression is a constant, or a list of constants."""
    match node["class"]:
        case "CONSTANT" | "PARAMETER":
            return True
        case "CAST":
            return is_constant(node["child"])
        case "FUNCTION":
            return node["function_name"] == "list_value" and all(map(is_constant, node["children"]))
    return False


def is_star(node: object) -> bool:
    """Return whether a part of the tree stands for one of each column: `*`, `t.*` or `COLUMNS(…)`."""
    return isinstance(node, dict) and node.get("class") == "STAR"
