"""A condition from the user, made safe for use within a statement of ours.

DuckDB's parser makes it safe, not a pattern: the text must be one whole expression alone, and one still between
parentheses. Nothing in it (a `)`, a `;`, a comment, UNION) can then end those parentheses. The guard checks later what
the expression reads and calls, subqueries included.
"""

import json
from typing import Any

import duckdb

from gpuagent_collector.query.guard import check_text, open_parser
from gpuagent_common.errors import MisuseError

Tree = dict[str, Any]


def parenthesised(condition: str) -> str:
    """Return an SQL condition between parentheses.

    Raises MisuseError: the text is not one expression, or has a parameter (`?`, `$1`), which has no value here.
    """
    check_text(condition)
    within = f"({condition}\n)"  # the end of the line closes a comment
    with open_parser().cursor() as parser:
        bare = _select(parser, "true")
        for text in (condition, within):
            select = _select(parser, text)
            (expression, *more), alias = select["select_list"], select["select_list"][0]["alias"]
            if more or alias or {**select, "select_list": bare["select_list"]} != bare:
                raise MisuseError("the text is more than one condition; join conditions with AND")
    if _has_parameter(expression):
        raise MisuseError("a condition cannot have parameters (? or $1); write the value itself")
    return within


def _select(parser: duckdb.DuckDBPyConnection, expression: str) -> Tree:
    row = parser.execute("SELECT json_serialize_sql(?)", [f"SELECT {expression}"]).fetchone()
    parsed: Tree = json.loads(row[0]) if row else {}
    if parsed.get("error_type") == "parser":
        raise MisuseError(parsed["error_message"])
    nodes: list[Tree] = [statement["node"] for statement in parsed.get("statements", ())]
    if len(nodes) != 1 or nodes[0]["type"] != "SELECT_NODE":
        raise MisuseError("the text is more than one condition; join conditions with AND")
    return nodes[0]


def _has_parameter(tree: object) -> bool:
    if isinstance(tree, list):
        return any(map(_has_parameter, tree))
    if isinstance(tree, dict):
        return tree.get("class") == "PARAMETER" or any(map(_has_parameter, tree.values()))
    return False
