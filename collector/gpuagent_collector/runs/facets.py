"""Facets: the properties by which runs are grouped, and those in which compared runs must agree."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from gpuagent_collector.runs.arguments import NOT_GIVEN
from gpuagent_common.errors import MisuseError


@dataclass(frozen=True, slots=True)
class Facet:
    """A property of a run, or several of them together.

    Attributes:
        name: as in `--by`; several are comma-separated.
        plural: name of several values.
        expression: SQL of its value over run, session and places, as in data._RUNS; NULL: no value.
        joined: the facets whose values it combines; empty for a single one.
        argument: name of the argument of commands that it is; empty: all of the command; None: neither.
        fixes: other facets that follow from this one, so they need not agree between its values.
        parameters: names of the workload's parameters in which the sides differ on purpose.
        arguments: names of the arguments of commands in which the sides differ on purpose, without hyphens.
        usual: the natural baseline; None: there is no such value.
        preposition: for its values in a sentence: on satori, in docker, with cpu-burn.
        option: of the program whose value it is, as it is written before one; empty: a value names itself.
        describes: its values run different work, so that they are described and not tested.
        in_time: its values follow one another in time, so that they cannot take turns.
    """

    name: str
    plural: str
    expression: str
    fixes: frozenset[str] = frozenset()
    parameters: frozenset[str] = frozenset()
    arguments: frozenset[str] = frozenset()
    joined: tuple["Facet", ...] = ()
    argument: str | None = None
    usual: str | None = None
    preposition: str = "on"
    option: str = ""
    describes: bool = False
    in_time: bool = False

    @property
    def spoken(self) -> str:
        """The name within a sentence."""
        return self.name.replace(",", " and ").replace("label:command", "command")

    def name_side(self, side: str) -> str:
        """Return a value as people read it: a bare one has its option, such as --batch-size 32."""
        values = side.split(JOINT)
        if len(values) == len(self.joined):
            return JOINT.join(part.name_side(value) for part, value in zip(self.joined, values, strict=True))
        return f"{self.option} {side}" if self.option else side

    def where(self, side: str) -> str:
        """Return a value with its preposition."""
        name = self.name_side(side)
        # Of commands, "without --fast" is a name.
        return name if name.startswith("without ") else f"{self.preposition} {name}".lstrip()

    @property
    def names(self) -> frozenset[str]:
        """The names of its properties."""
        return frozenset(self.name.split(","))

    @property
    def parts(self) -> tuple["Facet", ...]:
        """The single facets of which it consists."""
        return self.joined or (self,)

    @property
    def is_of_arguments(self) -> bool:
        """Return whether it is of commands or their arguments, alone or beside others."""
        return any(part.argument is not None for part in self.parts)


# A program of the user's own has no parameters; a built-in workload has no value.
_OWN_PROGRAM = "CASE WHEN coalesce(CAST(run.parameters AS VARCHAR), '{}') = '{}' THEN run.workload END"

FACETS: tuple[Facet, ...] = (
    Facet("platform", "platforms", "run.platform"),
    Facet("environment", "environments", "run.environment", fixes=frozenset({"image"}), usual="bare", preposition="in"),
    Facet("interference", "interferences", "run.interference", usual="none", preposition="with"),
    Facet("limits", "limits", "coalesce(run.limits, 'none')", usual="none", preposition="with"),
    Facet("device", "devices", "coalesce(gpus.devices, 'no GPU')"),
    Facet("node", "nodes", "places.nodes", fixes=frozenset({"platform", "device"})),
    Facet(
        "nodes",
        "numbers of nodes",
        "run.nodes || if(run.nodes > 1, ' nodes', ' node')",
        fixes=frozenset({"device"}),
        parameters=frozenset({"nodes"}),
        arguments=frozenset({"nnodes"}),
        usual="1 node",
    ),
    Facet("command", "commands", _OWN_PROGRAM, argument="", preposition="with"),
    Facet("workload", "workloads", "run.workload", preposition="of", describes=True),
    # Of jobs alone.
    Facet("user", "users", "NULL", parameters=frozenset({"user"}), preposition="for"),
    Facet("name", "names", "NULL", preposition="for"),
    Facet("run", "runs", "run.run_id", preposition="in"),
    Facet("all", "runs", "'all runs'", preposition="over"),
)

# Facets in which runs must agree to be compared, except the compared one.
CONDITIONS = ("platform", "environment", "image", "interference", "limits", "device")

# Facets with a name of their own after a colon, and the statement that shows the names.
_KEYED = {
    "argument": "SELECT DISTINCT command FROM runs",
    "parameter": "SELECT DISTINCT parameters FROM runs",
    "label": "SELECT DISTINCT labels FROM runs",
}

_KEY = re.compile(r"[A-Za-z0-9._/-]+")


def can_name(key: str) -> bool:
    """Return whether --by takes the name of an argument, parameter or label."""
    return _KEY.fullmatch(key) is not None


# Separates the values of several facets in the name of a side.
JOINT = " · "

# The facet whose sides have other numbers of GPUs on purpose.
OF_RANKS = "parameter:ranks"


def find_facet(names: str) -> Facet:
    """Return the facet that `--by` names; for several comma-separated names, the combinations of their values.

    Raises:
        MisuseError: there is no such facet, or one is named twice.
    """
    parts = [_find_one(name.strip()) for name in names.split(",")]
    if len({part.name for part in parts}) < len(parts):
        raise MisuseError(f"--by names a facet twice: {', '.join(part.name for part in parts)}")
    # Runs of two workloads are never compared, and "all" divides nothing.
    parts = [part for part in parts if part.name not in ("all", "workload")] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    usual = [part.usual for part in parts if part.usual]
    return Facet(
        name=",".join(part.name for part in parts),
        plural="combinations",
        expression="NULL",
        joined=tuple(parts),
        fixes=frozenset[str]().union(*(part.fixes | {part.name} for part in parts)),
        parameters=frozenset[str]().union(*(part.parameters for part in parts)),
        arguments=frozenset[str]().union(*(part.arguments for part in parts)),
        usual=JOINT.join(usual) if len(usual) == len(parts) else None,
        preposition=parts[0].preposition,
        describes=any(part.describes for part in parts),
    )


def _find_one(name: str) -> Facet:
    for facet in FACETS:
        if facet.name == name:
            return facet
    kind, _, key = name.partition(":")
    plural = f"values of the {kind} {key}"
    if kind == "parameter" and can_name(key):
        sql, option = f"json_extract_string(run.parameters, '$.\"{key}\"')", f"--{key.replace('_', '-')}"
        return Facet(name, plural, sql, parameters=frozenset({key}), preposition="with", option=option)
    if kind == "argument" and can_name(key):
        return Facet(
            name,
            plural,
            _OWN_PROGRAM,
            arguments=frozenset({key.lstrip("-")}),
            argument=key,
            usual=NOT_GIVEN,
            preposition="with",
            option=key if key.startswith("-") else f"--{key}",
        )
    if kind == "label" and can_name(key):
        # The run's own label goes before that of its agent.
        labels = [f"json_extract_string({source}.labels, '$.\"{key}\"')" for source in ("run", "session")]
        # A bench labels commands that are alike but for paths.
        plural = "commands" if key == "command" else plural
        return Facet(name, plural, f"coalesce({', '.join(labels)})", preposition="with")
    if kind in _KEYED:
        wrong = f"it cannot be {key!r}; " if key else ""
        shown = f'`collector query sql "{_KEYED[kind]}"` shows what there is'
        raise MisuseError(f"--by {kind}:NAME needs the name of the {kind}; {wrong}{shown}")
    names = [facet.name for facet in FACETS]
    kinds = get_close_matches(kind, _KEYED, n=1, cutoff=0.5 if key else 0.7)
    close = [f"{kinds[0]}:{key or 'NAME'}"] if kinds else get_close_matches(name, names, n=1, cutoff=0.7)
    own = name if can_name(name) else "NAME"
    known = f"of a workload, a command or a label it is parameter:{own}, argument:{own} or label:{own}"
    known += f"; else there are {', '.join(names)}"
    if name == "experiment":
        known = "--experiment NAME takes one alone, and --by label:KEY compares runs by a label"
    raise MisuseError(f"--by {name} is unknown; {f'did you mean {close[0]}?' if close else known}")


# More sides are counted in headings.
_MOST_NAMED = 6


def name_sides(sides: Sequence[str], facet: Facet) -> str:
    """Return the names of the sides for a heading, or how many there are."""
    if len(sides) == 1:
        return facet.name_side(sides[0])
    return ", ".join(sides) if len(sides) <= _MOST_NAMED else f"{len(sides)} {facet.plural}"
