"""Asks a test's collector."""

from tests.support.servers import Node


def ask(node: Node, sql: str) -> list[dict[str, object]]:
    """Return the rows of a query."""
    return node.ask(sql)
