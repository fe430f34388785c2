"""The description of a workload: what `list` shows, how it is run, and its parameters, the fields of its Config."""

import dataclasses
import pkgutil
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.report import Reporter

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

        Raises MisuseError: they contradict one another.
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


ConfigT = TypeVar("ConfigT")

Kind = Literal["training", "measurement", "interference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload(Generic[ConfigT]):
    """One workload."""

    # As on the command line, with dashes.
    name: str
    # One sentence.
    summary: str
    # training: it trains a model and has a throughput; measurement: it measures a part of the platform; interference:
    # it runs beside the measured workload.
    kind: Kind
    # The study that used it, and its purpose there.
    study: str
    # Its data and their origin.
    data: str
    # Its demand for memory, in words.
    memory: str
    # A frozen dataclass of parameters (`parameter`) that checks itself in `__post_init__`.
    config: type[ConfigT]
    # `module:function` of the program, called with the Config and a Reporter. A name, so that listing workloads does
    # not import torch, which takes seconds.
    entry: str
    # The phase that begins before the entry's module is imported.
    first_phase: str = "prepare"
    # `module:function` that fetches its data, called with a directory and mirrors. None: there is nothing to fetch.
    preparation: str | None = None
    # The name of the fetched data, for its folder in the cache, which workloads with the same data share. None: the
    # workload's name.
    dataset: str | None = None

    def run(self, config: ConfigT, reporter: Reporter) -> None:
        """Run it to its end, without the network.

        Raises:
            MisuseError: a parameter does not fit the machine, the data or another parameter.
            DataError: the data is missing or damaged.
            NonFiniteError: a figure is NaN or infinite.
            WorkloadError: something else failed that a user can fix.
        """
        reporter.phase(self.first_phase)
        pkgutil.resolve_name(self.entry)(config, reporter)

    def prepare(self, directory: Path, mirrors: Sequence[str]) -> None:
        """Fetch its data into a directory, from the given mirrors or, without any, from the authors'.

        Raises:
            MisuseError: a mirror is not an http or https URL.
            DataError: no mirror has the data intact, or the disk is full.
        """
        if self.preparation:
            pkgutil.resolve_name(self.preparation)(directory, mirrors)
