"""`collector plan --why`: an experiment that separates the facts in which two sides differ."""

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuagent_collector.compare.answer import answer
from gpuagent_collector.compare.caveats.runs import find_undeclared
from gpuagent_collector.compare.comparison import Comparison, Request, compare
from gpuagent_collector.errors import NothingToCompareError
from gpuagent_collector.present.answer import Answer, Bullets, Section
from gpuagent_collector.present.files import appearing
from gpuagent_collector.present.table import Column, Table
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.arguments import (
    Command,
    differing_arguments,
    identify_command,
    set_argument,
    write_argument,
)
from gpuagent_collector.runs.cells import Cell, choose_sides, tell_apart
from gpuagent_collector.runs.facets import JOINT, find_facet
from gpuagent_collector.runs.find import find_work
from gpuagent_collector.runs.repeating import Recorded, find_recorded
from gpuagent_collector.runs.settings import Settings, settings_of
from gpuagent_collector.runs.specs import SpecRow
from gpuagent_collector.runs.words import write_command
from gpuagent_collector.statistics.shift import least_pairs
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.limits import memory_text
from gpuagent_common.text import counted, harmless

# The label of runs that has their place in the ladder: its number and the fact that changed there.
LABEL = "rung"
_NO_RUNG = f"labels->>'{LABEL}' IS NULL"

_ENGINES = ("docker", "podman")
# From the simplest to what contains most; a ladder goes upwards.
_KINDS = ("bare", "slurm", "charliecloud", "apptainer", "singularity", *_ENGINES, "kubernetes")

# The fact where commands differ in words without a name.
_WORDS = "words of the command"

# More than the fewest pairs, so that a failed run costs no verdict.
_SPARE_REPEATS = 2

# Facts that follow from the rungs, or are no cause.
_COVERED = (
    *("Environment", "Image", "Interference", "Limits", "CPU limit", "Memory limit", "Container", "Orchestrator"),
    *("Command", "Threads", "Energy method", "Seed"),
)
# Facts of software that come with an image.
_IN_IMAGE = re.compile(r"torch|cuda version|cudnn|cublas|nccl|python|system", re.IGNORECASE)
# Beginnings of facts' names → how to make them equal. The first that fits counts.
_REMEDIES: Mapping[tuple[str, ...], str] = {
    ("CUDA of driver", "GPU driver"): "install the same driver on both nodes",
    ("CUDA cores",): "use nodes with the same GPU",
    ("Torch", "CUDA", "cu", "NCCL"): "install the same version on both sides, or run both in one image",
    ("GPU power limit",): "set it: nvidia-smi --power-limit",
    ("GPU link",): "use the same slot and node type",
    ("Kernel",): "boot both nodes with the same kernel",
    ("System",): "use the same system or one image",
    ("Virtualization",): "run the file on a node with and one without it, and compare --by platform",
}
_USUAL_FACETS = ("platform", "environment", "device", "command", "interference", "node")
_OTHER_REMEDY = "run the file on nodes of both sides, and compare them rung by rung: --by platform"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """A cell of the ladder, and the fact in which it differs from the one before it.

    Attributes:
        command: of a program of the user's own; empty for a built-in workload.
        parameters: of a built-in workload, in which the sides differ.
    """

    fact: str
    change: str
    settings: Settings
    command: Command = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)


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
        recorded: the options of the runs that raised the question.
    """

    comparison: Comparison
    rungs: tuple[Rung, ...]
    fixed: tuple[Fixed, ...]
    with_image: tuple[str, ...]
    repeats: int
    recorded: Recorded

    @property
    def is_settled(self) -> bool:
        """Return whether the sides differ in one setting of their work and in nothing else, which is the cause then."""
        return len(self.rungs) == 2 and self.rungs[0].settings == self.rungs[1].settings and not self.fixed

    @property
    def has_run(self) -> bool:
        """Return whether the rungs differ in their commands alone, and runs of each are known."""
        known = {identify_command(run.command) for run in self.comparison.runs if run.status == "succeeded"}
        is_of_work = all(rung.settings == self.rungs[0].settings and rung.command for rung in self.rungs)
        return is_of_work and not self.fixed and all(identify_command(rung.command) in known for rung in self.rungs)

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return re.sub(r"[^A-Za-z0-9._]+", "-", " ".join(["why", *self.comparison.layout.sides]))[:84]


def find_by(ask: Ask, values: Sequence[str], workload: str | None) -> str:
    """Return the first usual facet that has both values.

    Raises MisuseError: none has.
    """
    for name in _USUAL_FACETS:
        facet = find_facet(name)
        try:
            choose_sides(find_work(ask, facet, workload=workload, experiment=None), facet, values, None)
        except (MisuseError, NothingToCompareError):
            continue
        return name
    sides = " and ".join(map(shlex.quote, values))
    raise MisuseError(f"no runs are on the sides {sides}; `collector compare` names sides, as by --by command")


def compare_sides(ask: Ask, request: Request) -> Comparison:
    """Compare the two sides of a request in their largest block, without rungs; the simpler one is the baseline.

    Raises:
        MisuseError: a side or a facet is unknown.
        GpuAgentError: the sides have nothing in common.
    """
    found = compare(ask, replace(request, baseline=request.values[0], series=False, also=_NO_RUNG))
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
    rungs = [*_rungs_of_work(comparison, foot)]
    last = rungs[-1]
    rungs += [replace(rung, command=last.command, parameters=last.parameters) for rung in _rungs(foot, top)]
    fixed, with_image = _rest(comparison.specs, has_image=foot.image != top.image)
    if len(rungs) == 1:
        both = " and ".join(map(comparison.layout.facet.name_side, request.values))
        if not fixed:
            what = f"no recorded fact but the {comparison.layout.facet.spoken}"
            raise GpuAgentError(
                f"{both} differ in {what}, so there is nothing to separate; `collector compare` shows by how much"
            )
        named = ", ".join(each.title for each in fixed)
        compared = write_command("compare", request.choice, sides=request.values)
        remedy = f"exchange the nodes, or ask `{compared}` by how much they differ"
        raise GpuAgentError(f"{both} differ only in what an experiment cannot change: {named}; {remedy}")
    return Ladder(
        comparison=comparison,
        rungs=tuple(rungs),
        fixed=fixed,
        with_image=with_image,
        repeats=least_pairs(len(rungs) - 1) + _SPARE_REPEATS,
        recorded=find_recorded(ask, comparison.layout.run_ids),
    )


def _both(comparison: Comparison) -> tuple[Settings, Settings]:
    foot, top = (cell for cell in comparison.layout.blocks[0].cells if cell.runs)
    return settings_of(foot, comparison.facts), settings_of(top, comparison.facts)


def _rungs_of_work(comparison: Comparison, settings: Settings) -> Iterator[Rung]:
    """Yield the foot, and a rung for each argument or parameter in which the work of the sides differs."""
    block, facet = comparison.layout.blocks[0], comparison.layout.facet
    foot, top = (cell for cell in block.cells if cell.runs)
    command, last = _nearest_commands(foot, top)
    now = Rung(fact=foot.side, change="as it is", settings=settings, command=command)
    values = list(zip(facet.parts, foot.side.split(JOINT), top.side.split(JOINT), strict=False))
    given = [(part, pair) for part, *pair in values if part.parameters and part.option]
    own = {name: _read_value(before) for part, (before, _) in given for name in part.parameters}
    now = replace(now, parameters=own)
    yield now
    for part, (before, after) in given:
        if before != after:
            changed = {name: _read_value(after) for name in part.parameters}
            now = replace(now, fact=part.option, change=f"{before} → {after}", parameters={**now.parameters, **changed})
            yield now
    for name, (ours, theirs) in differing_arguments([[command], [last]]):
        if name:
            change = f"{' '.join(ours)} → {' '.join(theirs)}"
            now = replace(now, fact=name, change=change, command=set_argument(now.command, name, last))
            yield now
    if identify_command(now.command) != identify_command(last):
        yield replace(now, fact=_WORDS, change="as on the other side", command=last)


def _nearest_commands(foot: Cell, top: Cell) -> tuple[Command, Command]:
    """Return a command of each side that differ in the fewest arguments: the same one where both sides have it."""
    ours, theirs = (Counter(run.command for run in cell.runs) for cell in (foot, top))
    pairs = [(mine, other) for mine, _ in ours.most_common() for other, _ in theirs.most_common()]
    return min(pairs, key=lambda pair: len(differing_arguments([[pair[0]], [pair[1]]])))


def _read_value(text: str) -> Any:
    """Return the value of a parameter that is the name of a side."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _rungs(foot: Settings, top: Settings) -> Iterator[Rung]:
    """Yield a rung for each fact that an experiment can set: limits first, then what contains the program."""
    now = foot
    simple = (
        ("CPU threads", "threads", lambda value: value),
        ("CPU limit", "cpus", lambda value: f"{value:g} core{'' if value == 1 else 's'}"),
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
        remedy = next((text for starts, text in _REMEDIES.items() if row.title.startswith(starts)), _OTHER_REMEDY)
        first, second = (", ".join(values) or "unknown" for values in row.values)
        fixed.append(Fixed(title=row.title, values=(first, second), remedy=remedy))
    return tuple(fixed), tuple(together)


def write_experiment(ladder: Ladder) -> str:
    """Return the text of the file: a cell for each rung, and the command that divides the ratio."""
    comparison, (foot, top) = ladder.comparison, ladder.comparison.layout.sides
    block, request = comparison.layout.blocks[0], comparison.request
    answer = ["plan", block.workload, "--why", foot, top, "--by", request.by]
    answer += ["--metric", request.metric] if request.metric else []
    answer += ["--where", request.where] if request.where else []
    lines = [
        "# Each cell differs from the one before it in one fact. The order decides: what two facts cause only",
        "# together counts for the later one. To add a fact, insert an entry and number the labels anew.",
        *(f"# Not separated: {each.title} ({' / '.join(each.values)}); {each.remedy}." for each in ladder.fixed),
        f"name: {json.dumps(ladder.name)}",
        f"question: {json.dumps(f'Why do {foot} and {top} differ?')}",
        f"metric: {comparison.figures.primary.name}",
        f"repeats: {ladder.repeats}",
        "workloads:",
    ]
    # What torch sees of a CPU limit depends on the environment: as many threads in all cells are one fact less.
    facts = {rung.fact for rung in ladder.rungs}
    threads = not facts.isdisjoint({"CPU threads", "CPU limit"})
    for number, rung in enumerate(ladder.rungs):
        what: dict[str, Any] = {"command": list(rung.command), "name": block.workload, **ladder.recorded.steps}
        if len(ladder.recorded.inputs) == 1:
            what["input"] = ladder.recorded.inputs[0]
        if not rung.command:
            parameters = {name: value for name, value in block.parameters.items() if value is not None}
            parameters |= rung.parameters
            if threads and rung.settings.threads:
                parameters["threads"] = int(rung.settings.threads)
            what = {"workload": block.workload, "parameters": parameters}
        first, *others = what.items()
        lines.append(f"  - {first[0]}: {json.dumps(first[1])}")
        labels = {LABEL: f"{number} {rung.fact}"[:100]}
        for key, value in (*others, *_cell(rung.settings).items(), ("labels", labels)):
            lines.append(f"    {key}: {json.dumps(value)}")
    lines += ["answer:", f"  - {json.dumps(shlex.join(answer))}"]
    return "\n".join(lines) + "\n"


def _cell(settings: Settings) -> dict[str, Any]:
    """Return the keys of an entry that differ from their defaults."""
    limits: dict[str, Any] = {} if settings.cpus is None else {"cpus": settings.cpus}
    if settings.memory_bytes is not None:
        text = memory_text(settings.memory_bytes)
        limits["memory"] = f"{settings.memory_bytes // 1024}K" if text.endswith("B") else text
    environment = settings.environment + (f":{settings.image}" if settings.image else "")
    given = {
        "environments": [environment],
        "limits": [limits] if limits else None,
        "with": [settings.interference.split("+")] if settings.interference != "none" else None,
        "options": {settings.environment: settings.options} if settings.options else None,
    }
    return {name: value for name, value in given.items() if value}


def answer_why(ask: Ask, request: Request, output: Path | None) -> Answer:
    """Return the ladder of two sides, whose experiment is written to `output`, or the setting that is the cause."""
    ladder = plan_ladder(ask, request)
    if ladder.is_settled:
        return render_settled(ladder)
    if output:
        with appearing(output) as unfinished:
            unfinished.write_text(write_experiment(ladder), encoding="utf-8")
    return render_ladder(ladder, str(output) if output else None)


def render_settled(ladder: Ladder) -> Answer:
    """Return the answer where one setting is the only difference: its effect, which the runs already show."""
    comparison, rung = ladder.comparison, ladder.rungs[1]
    request, layout = comparison.request, comparison.layout
    named = {**request.choice, "--by": request.by, "--workload": layout.blocks[0].workload}
    # One pair of commands differs in nothing else, but a side may have runs of more commands than the other.
    undeclared = find_undeclared(layout.blocks[0], layout.facet)
    changed = "" if rung.fact == _WORDS else rung.fact
    others = [pair for pair in undeclared if pair[0] != changed and len(set(pair[1])) > 1]
    said = (
        "and in no other recorded fact, so there is nothing to separate: the whole difference is its effect. "
        + " ".join(answer(comparison, most=1).splitlines())
    )
    if others:
        listed = "; ".join(write_argument(*pair) for pair in others)
        said = f"and their runs also in {listed}, so the difference is not the effect of {rung.fact} alone."
        named["--by"] = "command"
    return Answer(
        heading=f"Why {layout.blocks[0].workload} differs between {' and '.join(layout.sides)}",
        text=f"The sides differ in {rung.fact} ({rung.change}) {said}",
        facts={"sides": layout.sides, "rungs": [{"rung": 1, "fact": rung.fact, "change": rung.change}]},
        caveats=comparison.caveats,
        next=write_command("compare", named, sides=() if others else layout.sides),
        sides=layout.sides,
    )


def render_ladder(ladder: Ladder, path: str | None) -> Answer:
    """Return the answer of a plan; `path` is where its experiment was written, None: nowhere."""
    comparison = ladder.comparison
    block, (foot, top) = comparison.layout.blocks[0], comparison.layout.sides
    numbered = [{"rung": number, "fact": rung.fact, "change": rung.change} for number, rung in enumerate(ladder.rungs)]
    columns = [Column(name, name, show=str, left=True) for name in ("rung", "fact", "change")]
    rungs = Table(columns, numbered)
    sections = []
    if ladder.with_image:
        points = tuple((each, "") for each in ladder.with_image)
        heading = "Changes together with the image; insert a rung with other versions to separate it"
        sections.append(Section(heading, [Bullets(points=points)]))
    if ladder.fixed:
        points = tuple((f"{each.title}: {' / '.join(each.values)}", each.remedy) for each in ladder.fixed)
        sections.append(Section("Not separated, because the experiment cannot set it", [Bullets(points=points)]))
    runs = ladder.repeats * len(ladder.rungs)
    then = f"{path} has the experiment." if path else "The next command writes the experiment."
    to_write = {"--by": comparison.request.by, "-o": "why.yaml"}
    command = write_command("plan", to_write, block.workload, "--why", foot, top)
    if path:
        command = harmless(shlex.join(["gpuagent", "experiment", "run", path, *ladder.recorded.of_agent]))
    if ladder.has_run:
        then = "Each of these cells has run already, so the next command shows what each option changes."
        command = write_command("compare", {"--by": "command", "--workload": block.workload})
    return Answer(
        heading=f"Why {tell_apart(block, comparison.layout.blocks)} differs between {foot} and {top}",
        text=f"From {foot} to {top}, an experiment can change {counted(len(ladder.rungs) - 1, 'fact')}, one after "
        f"the other: {counted(len(ladder.rungs), 'cell')} in {counted(ladder.repeats, 'repeat')}, {runs} runs. "
        f"What two facts cause only together counts for the later one. {then}",
        parts=[rungs],
        sections=sections,
        facts={
            "sides": comparison.layout.sides,
            "experiment": ladder.name,
            "repeats": ladder.repeats,
            "rungs": rungs,
            "not_separated": Table((Column("fact", value="title"), Column("values"), Column("remedy")), ladder.fixed),
            "with_image": ladder.with_image,
            "file": write_experiment(ladder),
        },
        csv=[rungs],
        next=command,
        sides=comparison.layout.sides,
    )
