"""What runs can be grouped by, and what else must agree between runs that are compared."""

import re
from dataclasses import dataclass

from gpuagent_collector.errors import MisuseError


@dataclass(frozen=True, slots=True, kw_only=True)
class Facet:
    """A property of a run.

    Attributes:
        name: as `--by` takes it.
        plural: what several values are called.
        expression: SQL of its value over run, session and places, as in data.RUNS; NULL: the run has none.
        fixes: other facets that follow from this one, and so need not agree between its values.
        usual: the value that is the natural baseline; None: no value is.
        preposition: how a sentence speaks of its values: on satori, in docker, with cpu-burn.
    """

    name: str
    plural: str
    expression: str
    fixes: frozenset[str] = frozenset()
    usual: str | None = None
    preposition: str = "on"


FACETS: tuple[Facet, ...] = (
    Facet(name="platform", plural="platforms", expression="run.platform"),
    Facet(
        name="environment",
        plural="environments",
        expression="run.environment",
        fixes=frozenset({"image"}),
        usual="bare",
        preposition="in",
    ),
    Facet(name="interference", plural="interferences", expression="run.interference", usual="none", preposition="with"),
    Facet(name="device", plural="devices", expression="coalesce(gpus.devices, 'no GPU')"),
    Facet(name="node", plural="nodes", expression="places.nodes", fixes=frozenset({"platform", "device"})),
)

CONDITIONS = ("platform", "environment", "image", "interference", "device")
"""Facets in which runs must agree to be compared, the one that is compared apart."""

_LABEL_KEY = re.compile(r"[A-Za-z0-9._/-]+")


def find_facet(name: str) -> Facet:
    """Return the facet that `--by` names.

    Raises:
        MisuseError: there is no such facet.
    """
    for facet in FACETS:
        if facet.name == name:
            return facet
    kind, _, key = name.partition(":")
    if kind == "label" and _LABEL_KEY.fullmatch(key):
        # The run's own label counts before that of the agent that ran it.
        labels = [f"json_extract_string({source}.labels, '$.\"{key}\"')" for source in ("run", "session")]
        return Facet(
            name=name,
            plural=f"values of the label {key}",
            expression=f"coalesce({', '.join(labels)})",
            preposition="with",
        )
    names = ", ".join(facet.name for facet in FACETS)
    raise MisuseError(f"--by {name} is unknown; there are {names} and label:KEY")
