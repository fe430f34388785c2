"""The nodes of a statement's syntax tree: what they are, and the sizes of constants."""

import json
from collections.abc import Sequence
from typing import Any

from gpuagent_collector.query.execute import Parameter
from gpuagent_collector.query.sizes import GATHERING, SMALL

Tree = dict[str, Any]


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
