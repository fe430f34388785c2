"""A condition that a user gives, made safe to stand within a statement of ours.

What makes it safe is DuckDB's parser, not a pattern: the text must be one whole expression where it stands alone, and
one still between parentheses. So nothing in it (a `)`, a `;`, a comment, UNION) can end the parentheses that it is put
into. What the expression may read and call, subqueries included, the guard decides when the statement is asked.
"""

import functools
import json
from typing import Any

import duckdb

from gpuagent_collector.query.guard import check_text
from gpuagent_common.errors import MisuseError

Tree = dict[str, Any]


def parenthesised(condition: str) -> str:
    """Return an SQL condition between parentheses.

    Raises:
        MisuseError: it is not one expression, or holds a parameter (`?`, `$1`), for which there is no value.
    """
    check_text(condition)
    within = f"({condition}\n)"  # the end of the line closes a comment
    with _parser().cursor() as parser:
        bare = _select(parser, "true")
        for text in (condition, within):
            select = _select(parser, text)
            (expression, *more), alias = select["select_list"], select["select_list"][0]["alias"]
            if more or alias or {**select, "select_list": bare["select_list"]} != bare:
                raise MisuseError("that is more than one condition")
    if _has_parameter(expression):
        raise MisuseError("there is no value for a ? or $1 in a condition")
    return within


@functools.cache
def _parser() -> duckdb.DuckDBPyConnection:
    """Return an empty database; making one takes longer than anything else here."""
    return duckdb.connect(config={"enable_external_access": "false"})


def _select(parser: duckdb.DuckDBPyConnection, expression: str) -> Tree:
    """Return the syntax tree of what selects `expression`."""
    row = parser.execute("SELECT json_serialize_sql(?)", [f"SELECT {expression}"]).fetchone()
    parsed: Tree = json.loads(row[0]) if row else {}
    if parsed.get("error_type") == "parser":
        raise MisuseError(parsed["error_message"])
    nodes: list[Tree] = [statement["node"] for statement in parsed.get("statements", ())]
    if len(nodes) != 1 or nodes[0]["type"] != "SELECT_NODE":
        raise MisuseError("that is more than one condition")
    return nodes[0]


def _has_parameter(tree: object) -> bool:
    if isinstance(tree, list):
        return any(map(_has_parameter, tree))
    if isinstance(tree, dict):
        return tree.get("class") == "PARAMETER" or any(map(_has_parameter, tree.values()))
    return False
