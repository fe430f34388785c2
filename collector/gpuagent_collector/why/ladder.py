"""A ladder of cells from one side's settings to the other's, each with one fact more changed."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuagent_collector.compare.comparison import Comparison, Request, compare
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.settings import Settings, settings_of
from gpuagent_collector.runs.specs import SpecRow
from gpuagent_collector.statistics.shift import least_pairs
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.limits import memory_text

# The label of runs that has their place in the ladder: its number and the fact that changed there.
LABEL = "rung"
_NO_RUNG = f"labels->>'{LABEL}' IS NULL"

_ENGINES = ("docker", "podman")
# From the simplest to what contains most; a ladder goes upwards.
_KINDS = ("bare", "slurm", "charliecloud", "apptainer", "singularity", *_ENGINES, "kubernetes")

_OBSERVED = """
SELECT count(*) > 0 AS observed FROM run_events
WHERE event = 'found' AND name NOT LIKE 'pattern %' AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))"""

# More than the fewest pairs, so that a failed run costs no verdict.
_SPARE_REPEATS = 2

# Facts that follow from the rungs, or are no cause.
_COVERED = (
    *("Environment", "Image", "Interference", "Limits", "CPU limit", "Memory limit", "Container", "Orchestrator"),
    *("Command", "Threads", "Energy method", "Seed"),
)
# Facts of software that come with an image.
_IN_IMAGE = re.compile(r"torch|cuda version|cudnn|cublas|nccl|python|system", re.IGNORECASE)
# Beginning of a fact's name → how to make it equal. The first that fits counts.
_REMEDIES: Mapping[str, str] = {
    "Torch": "install the same version on both sides, or run both in one image",
    "CUDA of driver": "install the same driver on both nodes",
    "CUDA cores": "use nodes with the same GPU",
    "CUDA": "install the same version on both sides, or run both in one image",
    "cu": "install the same version on both sides, or run both in one image",
    "NCCL": "install the same version on both sides, or run both in one image",
    "GPU driver": "install the same driver on both nodes",
    "GPU power limit": "set it: nvidia-smi --power-limit",
    "GPU link": "use the same slot and node type",
    "Kernel": "boot both nodes with the same kernel",
    "System": "use the same system or one image",
    "Virtualization": "run the file on a node with and one without it, and compare --by platform",
}
_OTHER_REMEDY = "run the file on nodes of both sides, and compare them rung by rung: --by platform"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """A cell of the ladder, and the fact in which it differs from the one before it."""

    fact: str
    change: str
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """A fact that differs and that the experiment cannot set; `values` are those of the two sides."""

    title: str
    values: tuple[str, str]
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The experiment that separates the facts in which two sides differ.

    Attributes:
        comparison: of the runs that raised the question; its baseline is the foot.
        rungs: the first has the foot's settings, the last the top's.
        fixed: facts that the experiment cannot change.
        with_image: facts that change together with the image.
        repeats: enough for every verdict.
        observed: whether the runs of a program were observed.
        where: the user's condition on the runs that raised the question.
    """

    comparison: Comparison
    rungs: tuple[Rung, ...]
    fixed: tuple[Fixed, ...]
    with_image: tuple[str, ...]
    repeats: int
    observed: bool
    where: str | None

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return "why-" + re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(self.comparison.layout.sides))[:80]


def compare_sides(ask: Ask, request: Request) -> Comparison:
    """Compare the two sides of a request in their largest block, without rungs; the simpler one is the baseline.

    Raises:
        MisuseError: a side or a facet is unknown.
        GpuAgentError: the sides have nothing in common.
    """
    where = f"({request.where}) AND {_NO_RUNG}" if request.where else _NO_RUNG
    found = compare(ask, replace(request, baseline=request.values[0], series=False, where=where))
    ranks = [_KINDS.index(kind) if (kind := side.kind) in _KINDS else 0 for side in _both(found)]
    return compare(ask, replace(found.request, baseline=request.values[1])) if ranks[0] > ranks[1] else found


def plan_ladder(ask: Ask, request: Request) -> Ladder:
    """Return the experiment that separates the facts in which two sides differ.

    Raises:
        MisuseError: a side or a facet is unknown, or the sides are one.
        GpuAgentError: the sides have nothing in common, or differ in nothing that an experiment can set.
    """
    if len(set(request.values)) != 2:
        raise MisuseError("--why takes two different sides, such as: --why bare docker --by environment")
    comparison = compare_sides(ask, request)
    foot, top = _both(comparison)
    rungs = (Rung(fact=comparison.layout.sides[0], change="as it is", settings=foot), *_rungs(foot, top))
    fixed, with_image = _rest(comparison.specs, has_image=foot.image != top.image)
    if len(rungs) == 1:
        named = ", ".join(each.title for each in fixed) or "no recorded fact"
        raise GpuAgentError(f"an experiment can set nothing in which {' and '.join(request.values)} differ: {named}")
    return Ladder(
        comparison=comparison,
        rungs=rungs,
        fixed=fixed,
        with_image=with_image,
        repeats=least_pairs(len(rungs) - 1) + _SPARE_REPEATS,
        observed=ask(_OBSERVED, [comparison.layout.run_ids])[0]["observed"],
        where=request.where,
    )


def _both(comparison: Comparison) -> tuple[Settings, Settings]:
    foot, top = (cell for cell in comparison.layout.blocks[0].cells if cell.runs)
    return settings_of(foot, comparison.facts), settings_of(top, comparison.facts)


def _rungs(foot: Settings, top: Settings) -> Iterator[Rung]:
    """Yield a rung for each fact that an experiment can set: limits first, then what contains the program."""
    now = foot
    simple = (
        ("CPU threads", "threads", lambda value: value),
        ("CPU limit", "cpus", lambda value: f"{value:g} cores"),
        ("memory limit", "memory_bytes", memory_text),
        ("interference", "interference", lambda value: value),
    )
    for fact, name, write in simple:
        before, after = getattr(now, name), getattr(top, name)
        if before != after and not (name == "threads" and after is None):
            now = replace(now, **{name: after})
            words = ["none" if value is None else write(value) for value in (before, after)]
            yield Rung(fact=fact, change=" → ".join(words), settings=now)
    if (now.environment, now.image) == (top.environment, top.image):
        return
    enters = now.kind not in (*_ENGINES, "kubernetes")
    if top.kind == "kubernetes" and top.image and enters:
        now = replace(now, environment=_ENGINES[0], image=top.image)
        yield Rung(fact="container and image", change=f"{foot.environment} → {now.environment}", settings=now)
    elif top.kind in _ENGINES and enters:
        now = replace(now, environment=top.environment, image=top.image, options="--network=host --ipc=host")
        yield Rung(fact="container and image", change=f"{foot.environment} → {top.environment}", settings=now)
        now = replace(now, options="--network=host")
        yield Rung(fact="shared memory", change="the node's → its own", settings=now)
        now = replace(now, options="")
        yield Rung(fact="network", change="the node's → its own", settings=now)
        return
    if now.environment != top.environment:
        both = "" if now.image == top.image else " and image"
        fact = "pod" if top.kind == "kubernetes" and now.image == top.image else f"environment{both}"
        change, now = f"{now.environment} → {top.environment}", replace(now, environment=top.environment)
        now = replace(now, image=top.image)
        yield Rung(fact=fact, change=change, settings=now)
    elif now.image != top.image:
        yield Rung(fact="image", change=f"{now.image} → {top.image}", settings=replace(now, image=top.image))


def _rest(specs: Sequence[SpecRow], *, has_image: bool) -> tuple[tuple[Fixed, ...], tuple[str, ...]]:
    """Return the facts that no rung changes, and those that change together with the image."""
    fixed, together = [], []
    for row in specs:
        if not row.differs or row.title in _COVERED:
            continue
        if has_image and _IN_IMAGE.search(row.title) and row.title != "CUDA of driver":
            together.append(f"{row.title} ({' / '.join(', '.join(values) or 'none' for values in row.values)})")
            continue
        remedy = next((text for start, text in _REMEDIES.items() if row.title.startswith(start)), _OTHER_REMEDY)
        first, second = (", ".join(values) or "unknown" for values in row.values)
        fixed.append(Fixed(title=row.title, values=(first, second), remedy=remedy))
    return tuple(fixed), tuple(together)
