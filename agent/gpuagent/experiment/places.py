"""YAML whose numbers keep their texts, and whose values know their places in the file."""

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from gpuagent_common.errors import MisuseError

# An alias repeats its anchor: a short file can stand for more values than a program could visit.
_MOST_VALUES = 100_000

# In arguments and variables of programs: NUL ends those, and half a surrogate pair is no text.
_IMPASSABLE = re.compile("[\0\ud800-\udfff]")

# Keys are texts, or `<<`.
_KEYS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")


def read_yaml(content: bytes, name: str) -> tuple[Any, Any]:
    """Return the data in the content of a file, and its tree of nodes, for `mark`; `name` is the file's, for messages.

    Raises MisuseError: the content is empty or no YAML, or has values that no experiment can mean; names the place.
    """
    import yaml  # 20 ms, which no other command needs

    try:
        node = yaml.compose(content, yaml.SafeLoader)
        if node is None:
            raise MisuseError(f"{name} is empty")
        _check_nodes(node, name)
        return yaml.load(content, _loader()), node  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        raise MisuseError(f"{name}{place(error.problem_mark)}: {error.problem or error}") from error
    # PyYAML raises any error for a value that does not fit its own tag, such as `!!bool 7` or `!!timestamp x`.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        raise MisuseError(f"{name} is not YAML: {' '.join(str(error).split())}") from error


def place(at: Any) -> str:
    """Return a mark as `:line:column`; empty for None."""
    return f":{at.line + 1}:{at.column + 1}" if at else ""


def mark(node: Any, steps: Sequence[str]) -> Any:
    """Return the place in the file of the value to which the steps lead."""
    for step in steps:
        if not isinstance(node.value, list):
            break
        if node.value and isinstance(node.value[0], tuple):
            key, found = next(((key, value) for key, value in node.value if key.value == step), (None, None))
            if key is None:
                break
            if step is steps[-1]:
                return key.start_mark
            node = found
        else:
            node = node.value[int(step)]
    return node.start_mark


class _Integer(int):
    """A whole number that keeps its text: 010 in a command is no 8."""

    text: str

    def __str__(self) -> str:
        return self.text


class _Float(float):
    """A number that keeps its text."""

    text: str

    def __str__(self) -> str:
        return self.text


@functools.cache
def _loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_yaml_int(self, node: Any) -> _Integer:
            number = _Integer(super().construct_yaml_int(node))
            number.text = node.value
            return number

        def construct_yaml_float(self, node: Any) -> _Float:
            number = _Float(super().construct_yaml_float(node))
            number.text = node.value
            return number

    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_yaml_int)
    Loader.add_constructor("tag:yaml.org,2002:float", Loader.construct_yaml_float)
    return Loader


def _check_nodes(root: Any, name: str) -> None:
    """Refuse values that YAML allows and no experiment can mean."""
    for count, node in enumerate(_nodes(root)):
        if count == _MOST_VALUES:
            raise MisuseError(f"{name} is no experiment: it stands for more than {_MOST_VALUES:,} values")
        if node.id == "mapping":
            # YAML readers silently take the last one of equal keys.
            seen: set[str] = set()
            for key, _ in node.value:
                if key.tag not in _KEYS or key.id != "scalar":
                    raise MisuseError(f"{name}{place(key.start_mark)}: this key is no text; write it between quotes")
                if key.value in seen:
                    raise MisuseError(f"{name}{place(key.start_mark)}: {key.value} is given twice")
                seen.add(key.value)
        elif node.id == "scalar" and _IMPASSABLE.search(node.value):
            raise MisuseError(f"{name}{place(node.start_mark)}: no program can take this text: {node.value!r:.100}")


def _nodes(root: Any) -> Iterator[Any]:
    """Yield a node and all below it in the file's order; an alias within its own anchor makes that endless."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        below = node.value if isinstance(node.value, list) else ()
        parts = [part for child in below for part in (child if isinstance(child, tuple) else (child,))]
        waiting.extend(reversed(parts))
