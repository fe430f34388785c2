"""Asks a test's collector."""

import json

from tests.support.servers import Node


def ask(node: Node, sql: str) -> list[dict[str, object]]:
    """Return the rows of a query."""
    rows: list[dict[str, object]] = json.loads(node.run("collector", "query", "sql", sql, "--json").stdout)
    return rows
