"""Options that make new runs like stored ones, and those that the store does not have."""

import os
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from gpuagent_collector.json_cells import read_object, read_words
from gpuagent_collector.metrics.metric import STEPS
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.arguments import USUAL_REPEATS, Command, in_order, parse_arguments
from gpuagent_collector.runs.arguments import repeat_command as command_with
from gpuagent_collector.runs.cells import Layout
from gpuagent_collector.runs.facets import JOINT
from gpuagent_collector.runs.words import write_value
from gpuagent_common.looks import FIRST_LOOK, RULE_LABEL, read_rule
from gpuagent_common.naming import RESERVED_LABELS
from gpuagent_common.program_name import find_step_size, is_step_size, name_programs, read_options
from gpuagent_common.text import harmless

_ASKED = """
SELECT session.platform, nullif(session.platform, session.hostname) AS named, run.environment, run.image,
       session.hostname, run.nodes, run.limits, run.workload, CAST(run.command AS VARCHAR) AS command,
       CAST(session.labels AS VARCHAR) AS of_session, CAST(run.labels AS VARCHAR) AS of_run, count(*) AS runs
FROM runs AS run LEFT JOIN sessions AS session USING (session_id)
WHERE run.run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
GROUP BY ALL ORDER BY ALL"""

# The sources of steps that a program did not report by itself, with the options that found them, and standard inputs.
_EVENTS = """
SELECT DISTINCT event, name, CAST(detail AS VARCHAR) AS detail FROM run_events
WHERE event IN ('found', 'input') AND name IS NOT NULL
  AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[]))) ORDER BY ALL"""

_UNITS = """
SELECT DISTINCT unit FROM results WHERE name = 'throughput' AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))"""

# Labels that a batch job gives its agent, or an experiment its runs.
_MADE = re.compile(rf"slurm_.*|ls[bf].*|rung|command|{'|'.join(RESERVED_LABELS)}")

# Facets whose values are commands, and the most rounds of a bench that is proposed without a plan.
_BENCHED = ("command", "label:command")
_MOST_ROUNDS = 20

# Facets whose values are machines, which no bench has.
_PLACES = frozenset({"platform", "node", "device"})

# Limits of a run that are options of a launch, without changes while it runs.
_LIMITS = ("cpus", "memory")

# More nodes, or platforms, have no room on a line.
_MOST_NAMED = 4

# Parameters of built-in workloads whose names are those of options of a bench.
OF_BENCH = ("output", "rate", "rounds", "timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The options of stored runs, as far as they are recorded.

    Attributes:
        nodes: the names of the runs' nodes, where they are all known and none of them is this one.
        platforms: of the runs.
        limits: --cpus and --memory with the values that all runs share.
        of_agent: --platform and --label with the values that all runs share; of several platforms that of this machine
            with the fewest runs.
        parameters: --param with the values that the first run of a built-in workload was given; others have none.
        environments: with their images, as `--environment` takes them.
        inputs: the files that the runs had as standard input.
        steps: --observe, --pattern and --items-per-step with their values, as an experiment names them.
        rule: by which an experiment of them may stop early, such as `2% at 8,12,18`; '': by none, or by several.
        lacks_pattern: whether a pattern of the user's own found steps before agents recorded it.
    """

    nodes: tuple[str, ...]
    platforms: tuple[str, ...]
    limits: tuple[str, ...]
    of_agent: tuple[str, ...]
    parameters: tuple[str, ...]
    environments: tuple[str, ...]
    inputs: tuple[str, ...]
    steps: Mapping[str, str | float | bool]
    rule: str
    lacks_pattern: bool

    @property
    def given(self) -> dict[str, str]:
        """The parameters by name, with dashes, whether given as `--steps 60` or as `--param steps=60`."""
        found = parse_arguments([word for word in self.parameters if word != "--param"])
        return {name.lstrip("-").replace("_", "-"): value for name, value in found.items()}

    @property
    def platform(self) -> str | None:
        """The platform of new runs, where it is one of several; None: there is one alone, or none is this machine's."""
        return self.of_agent[1] if self.platforms[1:] and self.of_agent[:1] == ("--platform",) else None

    @property
    def lacking(self) -> str:
        """The sentence that names the option that is to be added; '' for none."""
        return "Add the --pattern of these runs to the next command, for throughput." if self.lacks_pattern else ""

    @property
    def options(self) -> list[str]:
        """The options of the agent, and the environments unless the runs were in none."""
        if self.environments == ("bare",):
            return [*self.of_agent]
        return [*self.of_agent, *(word for each in self.environments for word in ("--environment", each))]

    def sweep_command(self, layout: Layout, rounds: int | None = None) -> str:
        """Return the bench of a built-in workload over the parameters in which sides, or settings of them, differ."""
        facet, first = layout.facet, layout.blocks[0]
        values = zip(*(side.split(JOINT) for side in layout.sides), strict=True) if facet.joined else [layout.sides]
        varied: dict[str, Sequence[str]] = dict(zip((part.option for part in facet.parts), values, strict=True))
        settings = [block.parameters for block in layout.blocks if block.workload == first.workload]
        for name in first.parameters:
            of_name = list(dict.fromkeys(str(each[name]) for each in settings if each.get(name) is not None))
            if of_name[1:]:
                varied[f"--{name.replace('_', '-')}"] = of_name
        return self.workload_command(first.workload, varied, rounds)

    def workload_command(self, workload: str, varied: Mapping[str, Sequence[str]], rounds: int | None = None) -> str:
        """Return the bench of a built-in workload, with other values of parameters by their options."""
        is_varied = any(len(values) > 1 for values in varied.values())
        words = ["gpuagent", "bench", *(["--rounds", str(rounds)] if rounds else []), workload]
        words += write_parameters({name: value for name, value in self.given.items() if f"--{name}" not in varied})
        for option, of_option in varied.items():
            if len(of_option) == 1:
                words += write_parameters({option.removeprefix("--"): of_option[0]})
            else:
                words += ["--vary", f"{option.lstrip('-')}={','.join(dict.fromkeys(of_option))}"]
        return harmless(shlex.join([*words, *self.options, *self._until(rounds, is_varied=is_varied)]))

    def _until(self, repeats: int | None, *, is_varied: bool) -> list[str]:
        """Return the option by which so many repeats stop as early as the stored ones could; one side never stops."""
        has_sides = is_varied or len(self.environments) > 1
        may_stop = has_sides and (repeats or 0) > FIRST_LOOK
        return ["--until", read_rule(self.rule)[0]] if self.rule and may_stop else []

    def choose_agents(self, nodes: Sequence[str] = ()) -> list[str]:
        """Return the options of a launch on nodes, or on those of the runs: many are all those of their platforms."""
        nodes, terms = nodes or self.nodes, list[str]()
        for name, values in (("platform", self.platforms), ("node", nodes)):
            terms = [f"{name}={value}" for value in values] if len(values) <= _MOST_NAMED else terms
        return [*(word for term in terms for word in ("--on", term)), *(["--all"] if nodes[1:] else [])]

    def launch_command(self, command: Command, workload: str, repeats: int, nodes: Sequence[str] = ()) -> str | None:
        """Return the command that makes new runs of one command on nodes, or on those of the runs, by their agents.

        None: some of the runs were made on this node, or not as agents can.
        """
        if not self.nodes or self.inputs or self.environments[1:]:
            return None
        options = [*self.choose_agents(nodes), "--repeat", str(repeats), *self.limits, "--wait"]
        labels = self.options[2:] if self.options[:1] == ["--platform"] else self.options
        if not command:
            return harmless(shlex.join(["collector", "launch", workload, *self.parameters, *options, *labels]))
        options += [*labels, *self._of_program([command], workload), "--"]
        return harmless(shlex.join(["collector", "launch", *options, *command]))

    def _of_program(self, commands: Sequence[Command], workload: str) -> list[str]:
        """Return the options of programs of the user's own: their name, and how their steps are found."""
        options = [] if workload == name_programs(dict.fromkeys(commands)) else ["--name", workload]
        for name, value in self.steps.items():
            of_value = [] if value is True else [f"{value:.15g}" if isinstance(value, float) else str(value)]
            options += [f"--{name.replace('_', '-')}", *of_value]
        return options

    def repeat_command(self, commands: Sequence[Command], workload: str, repeats: int | None = None) -> str | None:
        """Return the command that makes new runs of commands in turns.

        None: it would be too long, or the runs had several standard inputs.
        """
        if len(self.inputs) > 1:
            return None
        options = [*self._until(repeats, is_varied=len(set(commands)) > 1), *self.options]
        options = options + self._of_program(commands, workload) if all(commands) else [*self.parameters, *options]
        return command_with(commands, workload, repeats, options, *self.inputs)


def _find_items_option(counts: Collection[float], commands: Iterable[Command]) -> str:
    """Return the option of commands whose values are the items of their steps; '' where there is none.

    Of runs without a throughput the items are unknown, so that an option of sizes may have further values.
    """
    values: dict[str, set[str]] = defaultdict(set)
    for command in commands:
        for option, value in dict(read_options(command)).items():
            values[option].add(value)
    written = {f"{count:.15g}" for count in counts}
    for option, of_option in values.items():
        if len(of_option) > 1 and (of_option == written or (is_step_size(option) and of_option > written)):
            return option
    return ""


def find_varied(settings: Sequence[Mapping[str, object]]) -> Mapping[str, Sequence[str]]:
    """Return the values of each parameter in which settings differ, by its option; {}: a combination is missing."""
    values: dict[str, dict[str, None]] = defaultdict(dict)
    for parameters in settings:
        for name, value in parameters.items():
            values[f"--{name.replace('_', '-')}"][write_value(value)] = None
    varied = {name: sorted(found, key=in_order) for name, found in values.items() if len(found) > 1}
    return varied if prod(map(len, varied.values())) == len(settings) else {}


def write_parameters(parameters: Mapping[str, str]) -> list[str]:
    """Return the words that give parameters of a built-in workload to a bench."""
    words: list[str] = []
    for name, value in parameters.items():
        words += ["--param", f"{name}={value}"] if name in OF_BENCH else [f"--{name}", value]
    return words


def repeat_layout(ask: Ask, layout: Layout, needed: int | None = None) -> str | None:
    """Return the command that runs the first block's workload again; None: it is too long, or no bench makes the sides.

    Where a side has two runs, it takes the number of runs that are `needed`; None: that is unknown.
    """
    block = layout.blocks[0]
    runs = [run for each in layout.blocks if each.workload == block.workload for run in each.runs]
    if any(len(cell.runs) > 1 for each in layout.blocks for cell in each.cells):
        is_benched = all(part.name in _BENCHED or part.argument or part.option for part in layout.facet.parts)
        is_made = is_benched or layout.facet.name == "node"
        if needed is None or needed > _MOST_ROUNDS or not is_made or len(layout.blocks) > 1:
            return None
    rounds = needed if needed and needed > USUAL_REPEATS else None
    recorded = find_recorded(ask, [run.run_id for run in runs])
    if all(part.parameters and part.option for part in layout.facet.parts):
        return recorded.sweep_command(layout, rounds)
    launch = None
    if layout.facet.names <= _PLACES and len({run.command for run in runs}) == 1:
        launch = recorded.launch_command(runs[0].command, block.workload, needed or USUAL_REPEATS)
    if layout.facet.name == "node" and needed:  # a bench here is on one node
        return launch
    return launch or recorded.repeat_command([run.command for run in runs], block.workload, rounds)


def are_elsewhere(nodes: Iterable[str | None]) -> bool:
    """Return whether nodes are all known, and this machine is none of them."""
    own = {os.uname().nodename, *map(os.environ.get, ("GPUAGENT_NODE_ID", "GPUAGENT_NODE_NAME"))}
    return {None, *own}.isdisjoint(nodes)


def _choose_platform(asked: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the platform that new runs name: the only one, or that of this machine with the fewest runs; or None."""
    if len({row["platform"] for row in asked}) == 1:
        named: str | None = asked[0]["named"]
        return named
    # Other platforms are other machines, each with its own name.
    here = [row for row in asked if row["platform"] and not are_elsewhere([row["hostname"]])]
    counts: Counter[str] = Counter()
    for row in here:
        counts[row["platform"]] += row["runs"]
    return min(counts, key=lambda name: (counts[name], name), default=None)


def find_recorded(ask: Ask, run_ids: Iterable[str]) -> Recorded:
    """Return the options of runs."""
    ids = sorted(run_ids)
    asked = ask(_ASKED, [ids])
    events = [(row["event"], row["name"], read_object(row["detail"], "detail")) for row in ask(_EVENTS, [ids])]
    found = [(name, options) for event, name, options in events if event == "found"]
    inputs = [detail["path"] for event, _, detail in events if event == "input" and detail.get("path")]
    steps: dict[str, str | float | bool] = {}
    for source, options in found:
        steps |= {} if source.startswith("pattern ") else {"observe": True}
        steps |= {name: options[name] for name in ("pattern", "items_per_step") if options.get(name)}
    counts = {options["items_per_step"] for _, options in found if options.get("items_per_step")}
    commands = [read_words(row["command"]) for row in asked]
    option = _find_items_option(counts, commands) if counts else find_step_size(commands)
    # Where only steps were counted, and they differ in size, new runs count items.
    if option and (counts or [row["unit"] for row in ask(_UNITS, [ids])] == [STEPS]):
        steps["items_per_step"] = option
    platform = _choose_platform(asked)
    words = ["--platform", platform] if platform else []
    labels = [
        {**read_object(row["of_session"], "labels"), **read_object(row["of_run"], "labels")}.items() for row in asked
    ]
    rules = {str(dict(each).get(RULE_LABEL, "")) for each in labels}
    for name, value in labels[0] if labels else ():
        if not _MADE.fullmatch(name) and all((name, value) in each for each in labels):
            words += ["--label", f"{name}={value}"]
    # The words that follow the name of a built-in workload in the command of a run; none in other commands.
    parameters: Sequence[str] = ()
    if asked:
        command, before = read_words(asked[0]["command"]), ("gpuagent_workloads", "run", asked[0]["workload"])
        starts = [at for at in range(len(command)) if tuple(command[at : at + len(before)]) == before]
        parameters = command[starts[0] + len(before) :] if starts else ()
    nodes = {row["hostname"] for row in asked}
    limits = {row["limits"] or "none" for row in asked}
    given = [limit.partition("=") for limit in limits.pop().split() if "@" not in limit] if len(limits) == 1 else []
    places = {(row["environment"], row["image"]) for row in asked if row["environment"]}
    return Recorded(
        nodes=tuple(sorted(nodes)) if are_elsewhere(nodes) and all(row["nodes"] in (None, 1) for row in asked) else (),
        platforms=tuple(sorted({str(row["platform"]) for row in asked})),
        limits=tuple(word for name, _, limit in given if name in _LIMITS for word in (f"--{name}", limit)),
        of_agent=tuple(words),
        parameters=tuple(parameters),
        environments=tuple(sorted(f"{name}:{image}" if image else name for name, image in places)) or ("bare",),
        inputs=tuple(dict.fromkeys(map(str, inputs))),
        steps=steps,
        rule=rules.pop() if len(rules) == 1 else "",
        lacks_pattern="pattern given" in dict(found) and "pattern" not in steps,
    )
