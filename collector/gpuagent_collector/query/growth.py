"""A bound on the memory and time of a statement between two of DuckDB's looks at its limits.

DuckDB evaluates the expressions of 2,048 rows at a time. Within such a step it counts no memory and obeys no interrupt,
and it obeys none while it plans. So both are bounded before the statement starts, on its syntax tree: by the bytes that
its expressions make of one row, and by the number of tables it joins.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from gpuagent_collector.query.columns import (
    TEXT_BYTES,
    Column,
    column_size,
    given_name,
    item_column,
    renamed_columns,
    with_longest,
)
from gpuagent_collector.query.execute import Parameter
from gpuagent_collector.query.sizes import (
    GATHERING,
    LARGE,
    SMALL,
    cast_size,
    check_window,
    constant,
    elements,
    is_constant,
    is_gathering,
    is_star,
    is_uncounted,
    read_size,
    result_size,
    value_size,
)
from gpuagent_collector.store.columns import LongestTexts
from gpuagent_common.errors import MisuseError

# Of one row, over all expressions of the statement. 2,048 rows take 128 MiB then; see `server/query_service.py`.
MOST_ROW_BYTES = 64 * 1024

# What functions may read for that: some 0.3 s for 2,048 rows.
MOST_READ_BYTES = 256 * 1024

# Tables, views and subqueries. Planning takes the square of the number, or worse; a view of the store joins several.
MOST_RELATIONS = 40
_MOST_COLUMNS = 2000
_MOST_GROUPINGS = 32

# Of a table function, and of a description: more than they have.
_FUNCTION_COLUMNS = 10

# Each level of subqueries within expressions can double the plan.
_MOST_LEVELS = 12

_JSON_EACH = ("key", "value", "type", "atom", "id", "parent", "fullkey", "path", "json", "rowid")
_TABLE_FUNCTIONS = frozenset({"generate_series", "json_each", "range", "unnest"})

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """The names at one place of a statement."""

    # Columns by the name that a WITH clause defines.
    defined: Mapping[str, Sequence[Column]] = field(default_factory=dict)
    columns: Sequence[Column] = ()
    # True in the outermost SELECT: what it gathers is the answer.
    is_outermost: bool = False
    # Of subqueries around it.
    level: int = 0


class Growth:
    """A bound of statements about one store, safe for several threads."""

    def __init__(self, relations: Mapping[str, Sequence[Column]], longest: LongestTexts | None = None) -> None:
        """Take the store's columns by relation; see `store_columns`. No `longest`: no text is longer than usual."""
        self._relations = relations
        self.longest = longest or LongestTexts()
        self._now: tuple[Mapping[str, int], Mapping[str, Sequence[Column]]] = ({}, relations)

    def check(self, statement: Tree, parameters: Sequence[Parameter] = ()) -> int | None:
        """Check a statement's syntax tree that the guard lets through; return the most bytes it makes of a row.

        None: it gathers values of many rows, or keeps them where DuckDB does not count it, so it may be more. What it
        may make is decided with texts of the usual length, and so does not depend on what agents store; what it makes
        is returned with the longest that there are. Raises MisuseError: what it makes of a row cannot be bounded, or is
        too much.
        """
        bound = _bound(statement, self._relations, parameters)
        if not (
            bound.row_bytes <= MOST_ROW_BYTES and bound.read_bytes <= MOST_READ_BYTES
        ):  # also where it is no number
            raise MisuseError(_TOO_LARGE)
        if bound.keeps_rows:
            return None
        longest = self.longest.all()
        if longest:
            if self._now[0] is not longest:
                self._now = (longest, with_longest(self._relations, longest))
            bound = _bound(statement, self._now[1], parameters)
        return math.ceil(bound.row_bytes)


def _bound(statement: Tree, relations: Mapping[str, Sequence[Column]], parameters: Sequence[Parameter]) -> "_Bound":
    bound = _Bound(relations, parameters)
    try:
        bound.query(statement["node"], _Scope(is_outermost=True))
    except RecursionError:
        raise MisuseError("the statement is nested too deeply; use WITH clauses instead") from None
    return bound


_TOO_LARGE = (
    "with a token of scope viewer, values this large cannot be made of each row; shorten them with left(…, n), or use "
    "a token of scope operator"
)


# It would be made for each column, of which nobody knows the number: a struct's fields can be columns too.
_STAR_WITHIN = "with a token of scope viewer, COLUMNS(…) cannot be a part of an expression; name the columns"
# DuckDB evaluates it while it plans.
_STAR_OF = "with a token of scope viewer, COLUMNS takes `*`, a constant pattern or names"


class _Bound:
    def __init__(self, relations: Mapping[str, Sequence[Column]], parameters: Sequence[Parameter]) -> None:
        self._stored = relations
        self._parameters = parameters
        self._relations = 0
        # What all expressions so far make of one row, and what their functions read.
        self.row_bytes = 0.0
        self.read_bytes = 0.0
        # Whether an aggregate gathers values of many rows, or keeps them where DuckDB does not count it.
        self.keeps_rows = False

    def query(self, node: Tree, scope: _Scope) -> list[Column]:
        """Return the columns of a query, and add what it makes of a row."""
        for definition in (node.get("cte_map") or {}).get("map", ()):
            inner = replace(scope, is_outermost=False)
            columns = self.query(definition["value"]["query"]["node"], inner)
            named = renamed_columns(columns, "", definition["value"].get("aliases") or ())
            scope = replace(scope, defined={**scope.defined, definition["key"].lower(): named})
        match node["type"]:
            case "SELECT_NODE":
                columns = self._select(node, scope)
            case "SET_OPERATION_NODE":
                left, right = (self.query(node[side], scope) for side in ("left", "right"))
                if node["setop_type"] == "UNION_BY_NAME":
                    columns = left + right
                else:
                    self._others(node.get("modifiers"), replace(scope, columns=[*left, *scope.columns]))
                    columns = [
                        Column(
                            "", one.name or other.name, max(one.size, other.size), max(one.name_bytes, other.name_bytes)
                        )
                        for one, other in zip_longest(left, right, fillvalue=Column("", "", SMALL))
                    ]
            case kind:
                words = kind.removesuffix("_NODE").replace("_", " ")
                raise MisuseError(f"a token of scope viewer cannot use a {words}")
        if len(columns) > _MOST_COLUMNS:
            raise MisuseError(f"with a token of scope viewer, a query has at most {_MOST_COLUMNS:,} columns")
        return columns

    def _select(self, node: Tree, scope: _Scope) -> list[Column]:
        if len(node.get("group_sets") or ()) > _MOST_GROUPINGS:
            raise MisuseError(f"with a token of scope viewer, GROUP BY takes at most {_MOST_GROUPINGS} sets")
        found = self._table(node["from_table"], scope)
        self._sample(node)
        inside = replace(scope, columns=[*found, *scope.columns])
        columns: list[Column] = []
        for item in node["select_list"]:
            if is_star(item):
                replaced = self._star(item, inside)
                # The fields of a struct, and columns with other names.
                unknown = bool(item.get("relation_name") or item.get("rename_list") or replaced)
                widest = max([*replaced, *(column.size for column in found)], default=SMALL)
                made = [replace(column, relation="") for column in found]
                made += [Column("", "", widest, len(json.dumps(item)))] * unknown
            else:
                made = [item_column(item, self._size(item, replace(inside, is_outermost=False)))]
            columns += made
            if item.get("alias"):
                inside = replace(inside, columns=[*inside.columns, *made])
        self.row_bytes += sum(column.size for column in columns if column.size < LARGE or not scope.is_outermost)
        rest = {name: child for name, child in node.items() if name not in {"cte_map", "from_table", "select_list"}}
        self._others(rest, replace(inside, columns=[*inside.columns, *columns], is_outermost=False))
        return columns

    def _star(self, star: Tree, scope: _Scope) -> list[float]:
        """Return the most bytes of each value that a star has in the place of a column."""
        if star.get("expr") and not is_constant(star["expr"]):
            raise MisuseError(_STAR_OF)
        return [self._size(each["value"], scope) for each in star.get("replace_list") or ()]

    def _table(self, node: Tree, scope: _Scope) -> list[Column]:
        scope = replace(scope, is_outermost=False)
        alias, renamed = node.get("alias") or "", node.get("column_name_alias") or ()
        self._relations += node["type"] not in {"EMPTY", "JOIN"}
        self._sample(node)
        if self._relations > MOST_RELATIONS:
            raise MisuseError(f"with a token of scope viewer, a statement has at most {MOST_RELATIONS} tables")
        match node["type"]:
            case "EMPTY":
                return []
            case "BASE_TABLE":
                name = node["table_name"].lower()
                columns = scope.defined.get(name, self._stored.get(name, ()))
                return renamed_columns(columns, alias or name, renamed)
            case "SUBQUERY":
                return renamed_columns(self.query(node["subquery"]["node"], scope), alias, renamed)
            case "JOIN":
                left = self._table(node["left"], scope)
                right = self._table(node["right"], replace(scope, columns=[*left, *scope.columns]))
                both = [*left, *right]
                self._others(node.get("condition"), replace(scope, columns=[*both, *scope.columns]))
                return both
            case "TABLE_FUNCTION":
                columns = [*self._table_function(node["function"], scope), Column("", "ordinality", SMALL)]
                return renamed_columns(columns, alias, renamed)
            case "EXPRESSION_LIST":
                rows = [[self._size(value, scope) for value in row] for row in node["values"]]
                sizes = [max(column) for column in zip_longest(*rows, fillvalue=SMALL)]
                return renamed_columns(
                    [Column("", f"col{place}", size) for place, size in enumerate(sizes)], alias, renamed
                )
            case "SHOW_REF":
                described = self.query(node["query"], scope) if node.get("query") else []
                widest = max((column.field_size for column in described), default=TEXT_BYTES)
                self.row_bytes += _FUNCTION_COLUMNS * sum(column.field_size for column in described)
                return [Column(alias, "", widest)] * _FUNCTION_COLUMNS
            case kind:
                raise MisuseError(f"a token of scope viewer cannot use {kind.replace('_', ' ')}")

    def _sample(self, node: Tree) -> None:
        """Note a sample of a number of rows, which keeps them where DuckDB does not count it."""
        self.keeps_rows |= (node.get("sample") or {}).get("method") == "Reservoir"

    def _table_function(self, call: Tree, scope: _Scope) -> list[Column]:
        name = call["function_name"].lower()
        if name not in _TABLE_FUNCTIONS:
            raise MisuseError(f"a token of scope viewer cannot call the table function {name}")
        if name == "unnest":
            return [Column("", name, self._element(call["children"][0], scope))]
        sizes = [self._size(child, scope) for child in call["children"]]
        if name == "json_each":
            return [Column("", column, max(sizes)) for column in _JSON_EACH]
        return [Column("", name, SMALL)]

    def _others(self, tree: object, scope: _Scope) -> None:
        if isinstance(tree, list):
            for each in tree:
                self._others(each, scope)
        elif isinstance(tree, dict):
            if "class" in tree:
                self._size(tree, scope)
            else:
                for each in tree.values():
                    if is_star(each):  # a whole item of ORDER BY, or a condition
                        self._star(each, scope)
                    else:
                        self._others(each, scope)

    def _size(self, node: Tree, scope: _Scope) -> float:
        """Return the most bytes of an expression's value, and add what it and its parts make."""
        match node["class"]:
            case "CONSTANT":
                return value_size(node["value"].get("value"))
            case "PARAMETER":
                return value_size(self._parameter(node))
            case "COLUMN_REF":
                return column_size(node["column_names"], scope.columns)
            case "STAR":
                raise MisuseError(_STAR_WITHIN)
            case "POSITIONAL_REFERENCE":
                return max((column.size for column in scope.columns), default=TEXT_BYTES)
        before = self.row_bytes
        size = self._made_size(node, scope)
        if is_constant(node):
            self.row_bytes = before  # made once, not for each row
        elif not is_gathering(node):  # DuckDB counts what it gathers
            self.row_bytes += size
        return size

    def _made_size(self, node: Tree, scope: _Scope) -> float:
        match node["class"]:
            case "CAST":
                return cast_size(node["cast_type"], self._size(node["child"], scope))
            case "FUNCTION":
                return self._function(node, scope)
            case "WINDOW":
                check_window(node)
                self._others([value for name, value in node.items() if name != "children"], scope)
                return self._function(node, scope)
            case "SUBQUERY":
                if scope.level >= _MOST_LEVELS:
                    raise MisuseError(f"with a token of scope viewer, subqueries have at most {_MOST_LEVELS} levels")
                columns = self.query(node["subquery"]["node"], replace(scope, level=scope.level + 1))
                self._others(node.get("child"), scope)
                is_value = node["subquery_type"] == "SCALAR"
                return max((column.size for column in columns), default=SMALL) if is_value else SMALL
            case "CASE":
                self._others([check["when_expr"] for check in node["case_checks"]], scope)
                results = [check["then_expr"] for check in node["case_checks"]] + [node["else_expr"]]
                return max(self._size(result, scope) for result in results)
            case "OPERATOR":
                return self._operator(node, scope)
            case "BETWEEN" | "COMPARISON" | "CONJUNCTION" | "DEFAULT":
                self._others([value for value in node.values() if isinstance(value, dict | list)], scope)
                return SMALL
        raise MisuseError(f"a token of scope viewer cannot use a {node['class'].lower()}")

    def _operator(self, node: Tree, scope: _Scope) -> float:
        sizes = [self._size(child, scope) for child in node["children"]]
        match node["type"]:
            case "ARRAY_SLICE" if is_gathering(node["children"][0]):
                # The first elements of what an aggregate gathers, as in `list(x)[1:9]`.
                gathered, first, last = node["children"][0], *map(constant, node["children"][1:3])
                if first != 1 or not isinstance(last, int) or last < 0:
                    return LARGE
                return last * (SMALL + self._size(gathered["children"][0], scope))
            case "ARRAY_EXTRACT" | "ARRAY_SLICE" | "STRUCT_EXTRACT" | "OPERATOR_TRY":
                return sizes[0]
            case "OPERATOR_COALESCE":
                return max(sizes)
            case "OPERATOR_NOT" | "OPERATOR_IS_NULL" | "OPERATOR_IS_NOT_NULL" | "COMPARE_IN" | "COMPARE_NOT_IN":
                return SMALL
            case "ARRAY_CONSTRUCTOR":
                return sum(sizes) + SMALL * len(sizes)
            case "GROUPING_FUNCTION":
                return SMALL
            case kind:
                raise MisuseError(f"a token of scope viewer cannot use {kind.replace('_', ' ').lower()}")

    def _function(self, node: Tree, scope: _Scope) -> float:
        name, arguments = node["function_name"].lower(), list(node["children"])
        if node.get("schema", "") not in ("", "main"):
            # DuckDB puts the first argument of `column.function(…)` in the place of a schema.
            arguments.insert(0, {"class": "COLUMN_REF", "column_names": [node["schema"]]})
        self._others([node.get("filter"), node.get("order_bys")], scope)
        if name == "unnest":
            return self._element(arguments[0], scope)
        sizes = [self._size(argument, scope) for argument in arguments]
        if name in {"row", "struct_pack"}:  # its fields have their names
            sizes += [len(given_name(argument).encode()) for argument in arguments]
        size = result_size(name, arguments, sizes)
        self.keeps_rows |= name in GATHERING or is_uncounted(name, sizes)
        self.read_bytes += read_size(name, arguments, sizes)
        return size

    def _element(self, node: Tree, scope: _Scope) -> float:
        inner = node["child"] if node["class"] == "CAST" else node
        if is_constant(inner) and inner.get("children"):
            return 2 * max(self._size(child, scope) for child in inner["children"]) + SMALL
        if inner["class"] == "FUNCTION" and inner["function_name"] == "from_json" and is_constant(inner["children"][1]):
            inner = inner["children"][0]
            inner = inner["child"] if inner["class"] == "CAST" else inner
        if inner["class"] != "PARAMETER":
            return self._size(node, scope)
        return 2 * max(map(value_size, elements(self._parameter(inner))), default=SMALL) + 4 * SMALL

    def _parameter(self, node: Tree) -> Parameter:
        place = node.get("identifier", "")
        if not place.isdecimal() or not 0 < int(place) <= len(self._parameters):
            raise MisuseError("the statement has a parameter without a value")
        return self._parameters[int(place) - 1]
