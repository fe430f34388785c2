"""Parameters of a workload: the fields of its Config, with their help and their limits."""

import dataclasses
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpuagent_common.errors import MisuseError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

Type = Literal["int", "float", "str", "bool", "choice", "path"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter as the command line and `list --json` show it."""

    # With dashes, as on the command line.
    name: str
    type: Type
    # None: the workload decides.
    default: Any
    help: str
    # Empty: any value of its type.
    choices: tuple[str, ...] = ()
    # The least and the greatest value; None: no limit.
    minimum: float | None = None
    maximum: float | None = None


def parameter(
    default: Any,
    *,
    help: str,  # noqa: A002 - the word that argparse and click use for it
    choices: Sequence[str] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    path: bool = False,
) -> Any:
    """Declare a field of a Config.

    Args:
        default: the value when it is not given; None: the workload decides.
        help: a few words, with the unit.
        choices: the allowed values; empty: any of its type.
        minimum: the least allowed value.
        maximum: the greatest allowed value.
        path: it names a file or directory, unless it has its default value.
    """
    metadata = {"help": help, "choices": tuple(choices), "minimum": minimum, "maximum": maximum, "path": path}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A Config that refuses values outside its declared choices and limits."""

    def __post_init__(self) -> None:
        check(self)
        # Not by super(), which does not find the class that slots=True makes.
        for kind in reversed(type(self).__mro__):
            if "check_together" in vars(kind):
                vars(kind)["check_together"](self)

    def check_together(self) -> None:
        """Check parameters of this class that depend on one another; those of the classes above are checked before.

        Raises:
            MisuseError: they contradict one another.
        """


def parse_size(text: str) -> int | None:
    """Return the bytes of a size such as 4, 512K, 16MiB or 1gb, in powers of 1024; None: it is no size."""
    parts = re.fullmatch(r"([0-9]{1,12})([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    return int(parts[1]) * _UNITS[parts[2].upper()] if parts else None


def parameters_of(config: type[Any]) -> list[Parameter]:
    """Return the parameters that the fields of `config`, a dataclass, declare."""
    annotations = typing.get_type_hints(config)
    return [
        Parameter(
            name=field.name.replace("_", "-"),
            type=_type_of(annotations[field.name], field.metadata),
            default=field.default,
            **{name: field.metadata[name] for name in ("help", "choices", "minimum", "maximum")},
        )
        for field in dataclasses.fields(config)
    ]


def arguments_of(config: Any) -> list[str]:
    """Return the command-line arguments that make a Config equal to `config`."""
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items() if value is not None]


def check(config: Any) -> None:
    """Check every field against its declared choices and limits. Raises MisuseError where a value is not allowed."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value is None and field.default is None:
            continue
        choices, minimum, maximum = field.metadata["choices"], field.metadata["minimum"], field.metadata["maximum"]
        if choices:
            allowed: str | None = None if value in choices else f"one of {', '.join(choices)}"
        # Written so that NaN, which compares false with everything, is refused.
        elif (minimum is None or value >= minimum) and (maximum is None or value <= maximum):
            allowed = None
        else:
            parts = (("at least", minimum), ("at most", maximum))
            allowed = " and ".join(f"{words} {limit:.10g}" for words, limit in parts if limit is not None)
        if allowed:
            raise MisuseError(f"--{field.name.replace('_', '-')} must be {allowed}, not {value}")


def _type_of(annotation: Any, metadata: Mapping[str, Any]) -> Type:
    if metadata["choices"]:
        return "choice"
    if metadata["path"]:
        return "path"
    if isinstance(annotation, types.UnionType):
        annotation = next(member for member in typing.get_args(annotation) if member is not types.NoneType)
    names: dict[type, Type] = {bool: "bool", int: "int", float: "float", str: "str"}
    return names[annotation]
