"""`collector plan`: the number of repeats that a new experiment needs, and the command or file that makes them."""

import json
import secrets
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from math import ceil, expm1, inf
from pathlib import Path
from typing import Any

from gpuagent_collector.answers.plan_needs import (
    DELTA,
    EFFECTS,
    LEAST_FREEDOM,
    MOST_TESTED,
    BlockPlan,
    Need,
    Plan,
    Question,
    divide_by_command,
    divide_shared,
    of_one_place,
    plan_repeats,
    with_needs,
)
from gpuagent_collector.compare.choosing import say_experiment
from gpuagent_collector.present.answer import Answer, Section, join_sentences
from gpuagent_collector.present.files import appearing
from gpuagent_collector.present.human import significant
from gpuagent_collector.present.table import MOST_ROWS, Column, Table, data_table
from gpuagent_collector.query.ask import Ask, literal
from gpuagent_collector.runs.arguments import USUAL_REPEATS, Command
from gpuagent_collector.runs.cells import Block, first_few, tell_apart
from gpuagent_collector.runs.data import Run
from gpuagent_collector.runs.repeating import find_recorded
from gpuagent_collector.runs.words import join_words, name_file, percent, quote, spoken, write_command
from gpuagent_collector.statistics.repeats import MOST_REPEATS, POWERS
from gpuagent_common.errors import MisuseError
from gpuagent_common.looks import read_rule
from gpuagent_common.program_name import read_options
from gpuagent_common.text import counted, harmless

# More are counted in a sentence.
_MOST_SPOKEN_NODES = 4


def answer_plan(
    ask: Ask,
    *,
    delta: float,
    effect_percents: Sequence[float],
    why: tuple[str, str] | None,
    by: str | None,
    output: Path | None,
    **asked: Any,
) -> Answer:
    """Answer the command; `asked` are the other fields of a question, and with `why` of a comparison's request."""
    if why:
        from gpuagent_collector.answers.why import answer_why, find_by
        from gpuagent_collector.answers.why_divided import answer_divided
        from gpuagent_collector.compare.comparison import Request

        if asked.pop("comparisons"):
            raise MisuseError("--comparisons does not go with --why")
        request = Request(values=why, by=by or find_by(ask, why, asked["workload"]), delta=delta, **asked)
        return answer_divided(ask, request) or answer_why(ask, request, output)
    if by:
        raise MisuseError("--by needs --why A B")
    effects = [percent / 100 for percent in effect_percents]
    plan = replace(plan_repeats(ask, Question(effects=effects, delta=delta, **asked)), output=output)
    if plan.question.comparisons is None:
        plan = _with_comparisons(plan)
    if output:
        with appearing(output) as unfinished:
            unfinished.write_text(write_experiment(ask, plan), encoding="utf-8")
    return render(plan)


def _with_comparisons(plan: Plan) -> Plan:
    """Return the plan for as many comparisons as the answer of its next command tests together."""
    question = replace(plan.question, comparisons=max(1, _count_comparisons(plan)), are_counted=True)
    blocks = (with_needs(each, question) for each in plan.blocks)
    return replace(plan, question=question, blocks=tuple(blocks))


def _count_comparisons(plan: Plan) -> int:
    """Return how many comparisons the answer of the next command tests together: settings × (sides - 1)."""
    _, made, _ = _next(plan)
    chosen = _count_commands(plan)
    settings = sum(chosen) if plan.blocks[1:] or not made else made
    if (places := _count_places(plan)) > 1:
        return settings * (places - 1)
    return sum(commands - 1 for commands in chosen) if _have_sides(plan) else made - 1


def _count_places(plan: Plan) -> int:
    """Return how many platforms, nodes or environments are the sides of the new runs; 1: commands are."""
    recorded = plan.recorded
    places = (_nodes_by_platform(plan), recorded.nodes, recorded.environments, recorded.platforms)
    return next((len(each) for each in places if len(each) > 1), 1)


def _count_commands(plan: Plan) -> list[int]:
    """Return how many commands the new runs have of each block."""
    return [len(_choose_commands(_commands_of(each.block, plan), plan)) for each in plan.blocks]


def _commands_of(block: Block, plan: Plan) -> Sequence[Command]:
    return plan.commands if block is plan.blocks[0].block else tuple(divide_shared(block.runs))


def render(plan: Plan) -> Answer:
    """Return the answer; CSV has a line for each number of repeats."""
    question, needs = plan.question, data_table(list(_needs(plan)))
    blocks = [each.block for each in plan.blocks]
    return Answer(
        heading=f"Repeats for a new experiment: {spoken(plan.metric, question.stat)}",
        text=join_sentences([answer(plan), *([say_experiment(plan.experiments)] if plan.experiments else [])]),
        parts=[_overview(plan)],
        sections=[
            *(
                Section(tell_apart(each.block, blocks), [_scatter(each), _repeats(each, plan)], is_detail=True)
                for each in plan.blocks
            ),
            Section("How to read this", [_advice(plan)], is_detail=True),
        ],
        caveats=plan.caveats,
        next=None if _is_beyond_reach(plan) else _next(plan)[0],
        more="the repeats for each difference, and how to read this",
        facts={
            "metric": plan.metric.name,
            "stat": question.stat,
            "where": question.where,
            "comparisons": question.comparisons,
            "looks": question.looks,
            "level": question.level(),
            "least_effects": [
                {str(repeats): each.least_effect(repeats, question) for repeats in question.looks or _REPEATS}
                for each in plan.blocks
            ],
            "needs": needs,
        },
        csv=[needs],
    )


def _next(plan: Plan) -> tuple[str | None, int, int]:
    """Return the command that makes the new runs, of how many commands of the first workload, and of how many not.

    Of many commands it runs two that are undecided, or else the commonest two. None: it would be too long. Where each
    platform has as many already, it is their comparison, of no command.
    """
    block, recorded, commands = plan.blocks[0].block, plan.recorded, plan.commands
    repeats, several = _repeats_of_node(plan), plan.blocks[1:]
    is_one = not (several or commands[1:] or plan.question.looks or plan.output)
    if is_one and (launch := recorded.launch_command(commands[0], block.workload, repeats)):
        return launch, 1, 0
    is_varied = plan.varied and recorded.given
    if plan.output or recorded.nodes[1:] or (several and (recorded.nodes or not is_varied)):
        chosen = _choose_commands(commands, plan)
        return _run_file(plan), len(chosen), len(commands) - len(chosen)
    if several:
        return recorded.workload_command(block.workload, plan.varied, repeats), 1, 0
    one_each = len({run.platform for run in block.runs}) > 1
    newest = _find_newest(plan)
    if one_each and not plan.question.looks and min(map(len, newest.values())) >= repeats:
        names = sorted({runs[0].experiment or "" for runs in newest.values()})
        where = f"experiment IN ({', '.join(map(literal, names))})" if all(names) and not plan.question.where else None
        asked = {"--workload": block.workload, "--where": plan.question.where or where}
        return write_command("compare", asked), 0, 0
    for chosen in (commands[:1],) if one_each else (commands, _choose_commands(commands, plan, most=2)):
        if repeat := recorded.repeat_command(chosen, block.workload, repeats):
            return repeat, 1 if block.parameters else len(chosen), len(commands) - len(chosen)
    return None, 0, 0


def _is_beyond_reach(plan: Plan) -> bool:
    """Return whether the only difference that is asked for takes more runs than anybody makes, of each workload."""
    is_one = len(plan.question.effects) == 1 and not (plan.output or plan.question.looks)
    return is_one and all(each.needs[0].as_seen[0] is None and not each.clock_step for each in plan.blocks)


def _find_newest(plan: Plan) -> Mapping[str | None, Sequence[Run]]:
    """Return the runs of the commonest command on each platform of the new runs, of its newest experiment."""
    runs = plan.blocks[0].block.runs
    newest: dict[str | None, list[Run]] = {name: [] for name in plan.recorded.platforms}
    of_command = [run for run in runs if run.command == plan.commands[0] and run.platform in newest]
    for run in sorted(of_command, key=lambda run: run.started_at or datetime.min, reverse=True):  # noqa: DTZ901
        found = newest[run.platform]
        if not found or found[0].experiment == run.experiment:
            found.append(run)
    return newest


def _choose_commands(commands: Sequence[Command], plan: Plan, most: int = MOST_TESTED) -> Sequence[Command]:
    """Return the commands that new runs have: of many, two that are undecided, or else the commonest two."""
    if len(commands) <= most:
        return commands
    return plan.undecided if plan.undecided and commands == plan.commands else commands[:2]


def _run_file(plan: Plan) -> str:
    """Return the command that runs an experiment file, which is written before if it is not there."""
    question, recorded = plan.question, plan.recorded
    path = str(plan.output or name_file("plan.yaml"))
    run = ["gpuagent", "experiment", "run", path, *recorded.of_agent]
    if recorded.nodes:
        run = ["collector", "launch", path, *recorded.choose_agents(), "--wait"]
    if plan.output:
        return harmless(shlex.join(run))
    asked = {**question.words, "--workload": None, "--metric": question.metric, "-o": path}
    asked["--stat"] = question.stat and question.stat.value
    if question.comparisons and not question.are_counted:
        asked["--comparisons"] = str(question.comparisons)
    if question.delta != DELTA:
        asked["--delta"] = f"{question.delta:g}"
    words = [question.workload] if question.workload else []
    if tuple(question.effects) != EFFECTS:
        words += [word for effect in question.effects for word in ("--effect", f"{100 * effect:g}")]
    return f"{write_command('plan', asked, *words)} && {harmless(shlex.join(run))}"


def write_experiment(ask: Ask, plan: Plan) -> str:
    """Return the text of the experiment file that makes the new runs of all workloads and settings in turns."""
    labels = [word.partition("=") for word in plan.recorded.of_agent if "=" in word]
    head: dict[str, Any] = {
        "name": f"plan-{secrets.token_hex(3)}",
        "metric": plan.metric.name,
        "repeats": _repeats_of_node(plan),
        "labels": {name: value for name, _, value in labels},
    }
    if plan.question.looks:
        head["until"] = read_rule(plan.recorded.rule)[0]
    entries = [entry for each in plan.blocks for entry in _entries(ask, each.block, plan)]
    if plan.question.metric is None and any(entry.get("items_per_step") for entry in entries):
        head["metric"] = "throughput"
    lines = [f"{name}: {json.dumps(value)}" for name, value in head.items() if value]
    answers = ["compare"]
    if plan.recorded.nodes[1:] and not plan.recorded.platforms[1:]:
        answers = ["compare --by node"]
    elif _have_sides(plan):
        answers = [f"compare --workload {quote(each.block.workload)}" for each in plan.blocks]
    lines += ["workloads:", *(f"  - {json.dumps(entry)}" for entry in entries), f"answer: {json.dumps(answers)}"]
    return "\n".join(lines) + "\n"


def _entries(ask: Ask, block: Block, plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield the entry of each command of a workload, or that of a built-in one."""
    by_command = divide_by_command(of_one_place(block.runs))
    chosen = _choose_commands([each for each in _commands_of(block, plan) if each in by_command], plan)
    of_chosen = find_recorded(ask, [run.run_id for command in chosen for run in by_command[command].runs])
    for command in chosen:
        runs = by_command[command].runs
        recorded = find_recorded(ask, [run.run_id for run in runs])
        known = {name.replace("_", "-"): value for name, value in block.parameters.items() if value is not None}
        what: dict[str, Any] = {"workload": block.workload, "parameters": recorded.given or known}
        if command:
            # Of steps that were not counted, an option may have the items.
            size = dict(read_options(command)).get(str(of_chosen.steps.get("items_per_step")), "")
            items = {"items_per_step": int(size)} if size.isdigit() else {}
            what = {"name": block.workload, "command": list(command), **items, **recorded.steps}
        if recorded.inputs:
            what["input"] = recorded.inputs[0]
        given = zip(recorded.limits[::2], recorded.limits[1::2], strict=True)
        limits = {name.lstrip("-"): float(limit) if name == "--cpus" else limit for name, limit in given}
        beside = sorted({run.interference or "none" for run in runs})
        held = {
            "environments": [*recorded.environments],
            "with": [each.split("+") if "+" in each else each for each in beside],
            "limits": [limits or "none"],
        }
        yield what | {name: values for name, values in held.items() if values not in (["bare"], ["none"])}


def _have_sides(plan: Plan) -> bool:
    """Return whether there are several programs, each with several commands on one platform to compare."""
    runs = [each.block.runs for each in plan.blocks]
    is_one = len({run.platform for of_block in runs for run in of_block}) == 1
    return len(runs) > 1 and is_one and all(len({run.command for run in of_block}) > 1 for of_block in runs)


def _repeats_of_node(plan: Plan) -> int:
    """Return the new runs of each node: on several platforms, of which each is a side, its nodes share its runs."""
    rounds, on = _rounds(plan), _nodes_by_platform(plan)
    return ceil(rounds / min(on.values())) if len(on) > 1 else rounds


def _nodes_by_platform(plan: Plan) -> Counter[str]:
    """Return the platforms on whose nodes agents make the new runs, each with the number of these nodes."""
    runs, on = [run for each in plan.blocks for run in each.block.runs], plan.recorded.nodes
    return Counter(platform for platform, _ in {(str(run.platform), run.nodes) for run in runs if run.nodes in on})


def _rounds(plan: Plan) -> int:
    """Return the repeats that show the only, or the smallest difference in reach; otherwise the most in the table.

    Of several workloads or settings, it is the one that takes the most. With planned looks they are not fewer than
    those of the last one.
    """
    return max(_rounds_of(each.needs, plan.question) for each in plan.blocks)


def _rounds_of(needs: Sequence[Need], question: Question) -> int:
    repeats = [need.as_seen[0] for need in needs if need.effect is not None]
    only = repeats[0] if len(repeats) == 1 else None
    if only or question.looks:
        return max((only or 0, *question.looks))
    return next((each for each in repeats if each and each <= _REPEATS[-1]), _REPEATS[-1])


# In data; the first table has no room for the first.
_REPEATS = (5, 7, 10, 20)
# Of more workloads or settings, the sentence describes those that scatter least and most.
_SPOKEN_BLOCKS = 1


def answer(plan: Plan) -> str:
    """Return which differences the runs at hand show, and how many a new experiment takes for smaller ones."""
    blocks = [each.block for each in plan.blocks]
    title = spoken(plan.metric, plan.question.stat)
    sentences = []
    if len(blocks) > _SPOKEN_BLOCKS:
        sentences.append(_range_sentence(plan, title))
    for block in [] if sentences else plan.blocks:
        shown: list[str] = []
        # All commands together may show one all the same.
        alone = " of one command" if _count_places(plan) > 1 and _count_commands(plan)[0] > 1 else ""
        # Of more runs than usual, the table has what fewer show.
        for repeats in sorted({block.repeats, max(block.repeats, USUAL_REPEATS, *plan.question.looks)}):
            runs = f"{counted(repeats, 'run')} a side{', as here,' if repeats == block.repeats else ''}"
            effect = block.least_effect(repeats, plan.question)
            verb = "shows" if repeats == 1 else "show"
            several = any(len({run.nodes for run in cell.runs}) > 1 for cell in block.block.cells)
            runs_of = "runs on all nodes of a side" if several else "equal runs"
            why = f"{runs_of} scatter by {percent(expm1(block.spread.seen))}"
            if block.clock_step:
                why = f"they are equal by the clock of their lines, whose step is {_share(block.clock_step)}"
            because = "" if shown else f", because {why}"
            shown.append(
                f"{runs} cannot show any difference in {title}{alone}"
                if effect is None
                else f"{runs} {verb} a difference in {title} of {_share(effect)} or more{because}"
            )
        second = shown[1:] and shown[1].replace(f" in {title}", "")
        at_hand = "; ".join([shown[0], *([second] if second else [])])
        sentences.append(f"{tell_apart(block.block, blocks)}: {at_hand}.{_spoken_needs(block, plan.question)}")
    if plan.lacking and plan.metric.name == "throughput":
        sentences.append(f"No throughput is known of {first_few(plan.lacking)}; --metric run_seconds plans durations.")
    return " ".join([*sentences, *_say_next(plan)])


def _say_next(plan: Plan) -> Iterator[str]:
    """Yield what the next command makes, and which difference that shows."""
    command, made, left_out = _next(plan)
    if command is None or _is_beyond_reach(plan):
        return
    nodes, on, repeats = plan.recorded.nodes, _nodes_by_platform(plan), _repeats_of_node(plan)
    runs = repeats * min(on.values()) if len(on) > 1 else repeats
    effects = [each.least_effect(runs, plan.question) for each in plan.blocks]
    written = f"{plan.output} has the experiment." if plan.output else ""
    yield from filter(None, (written, plan.recorded.lacking))
    if None in effects:
        return
    effect = max(each or 0.0 for each in effects)
    is_unknown = any(each.clock_step > min(plan.question.effects) for each in plan.blocks)
    least = f"{_share(effect)} or more{', and whether they scatter' * is_unknown}"
    if not made:
        yield f"Each platform has {runs} new runs or more, which show {least}."
        return
    is_launched = "collector launch " in command
    named = f"{len(nodes)} nodes" if nodes[_MOST_SPOKEN_NODES:] else join_words(nodes)
    new = f"The next command{f', run on {named},' if nodes else ''} makes"
    if is_launched:
        new = "The next command asks a collector for"
    of = _of_which(plan, made, left_out)
    if plan.question.looks:
        yield f"{new} up to {runs} runs a side{of}{_say_looks(plan, runs, effect)}"
    elif is_launched and len(on) > 1:
        or_more = " or more" if len(set(on.values())) > 1 else ""
        yield f"{new} {runs} runs{of}{or_more} on each of {join_words(sorted(on))}, which show {least}."
    elif is_launched and nodes[1:]:
        yield f"{new} {runs} runs{of} on each of {named}, which show {least} between nodes."
    elif made == 1 or (plan.blocks[1:] and not _have_sides(plan)):
        there, other = f" on {named}" if is_launched else "", "the other side"
        if platform := plan.recorded.platform:
            there, other = f" on {platform}", first_few([each for each in plan.recorded.platforms if each != platform])
        yield f"{new} {runs} runs{of}{there}; with as many on {other} they show {least}."
    else:
        yield f"{new} {runs} runs a side{of}, which show {least}."


def _of_which(plan: Plan, made: int, left_out: int) -> str:
    """Return of which workloads, settings or commands the new runs are, as each has so many; '' for the only one."""
    if plan.blocks[1:]:
        commands = sum(_count_commands(plan))
        is_each = commands == len(plan.blocks) or _have_sides(plan)
        return f" of each {_kind(plan)}" if is_each else f" of each of {commands} commands"
    if left_out and made == 1:
        return " of the commonest command"
    if left_out and plan.undecided:
        return " of two commands whose difference is not shown yet"
    if left_out:
        return " of the commonest two commands"
    if shared := _say_shared(plan, made):
        return shared
    return " of each command" if made > 1 and plan.recorded.nodes[1:] else ""


def _say_shared(plan: Plan, made: int) -> str:
    """Return of how many of all commands the new runs are, and why, where platforms ran others too; '' if not."""
    platforms, ran = plan.recorded.platforms, defaultdict[Command, set[str]](set)
    for run in plan.blocks[0].block.runs:
        ran[run.command].add(str(run.platform))
    if made == len(ran) or len(platforms) == 1:
        return ""
    is_why = {command for command, places in ran.items() if len(places & {*platforms}) > 1} == {*plan.commands}
    places = "both" if len(platforms) == 2 else "several platforms"
    why = f" ({'that' if made == 1 else 'those'} run on {places})" if is_why else ""
    return f" of {'each of ' * (made > 1)}{made} of {len(ran)} commands{why}"


def _say_looks(plan: Plan, runs: int, effect: float) -> str:
    """Return what runs that may stop at planned looks show, and whether their intervals become so narrow.

    An interval as narrow as the rule shows a difference of its whole width, and perhaps not a smaller one.
    """
    width = float(read_rule(plan.recorded.rule)[0].rstrip("%")) / 100
    expected = max(block.expected_width(runs, plan.question) or 0.0 for block in plan.blocks)
    narrow = f"intervals as narrow as {percent(width)}"
    ends = f"It would stop at {narrow}, but they would be about {_share(expected)} wide"
    if expected <= width:
        effect = max(effect, width)
        ends = f"It stops at the first planned look with {narrow}, as these runs do"
    return f", which show {_share(effect)} or more. {ends}."


def _range_sentence(plan: Plan, title: str) -> str:
    """Return the least and the largest difference that the usual repeats show of a setting."""
    ends, repeats = [], max((USUAL_REPEATS, *plan.question.looks))
    sure = [each for each in plan.blocks if each.spread.freedom >= LEAST_FREEDOM]
    known = sure if 1 < len(sure) < len(plan.blocks) else plan.blocks
    ordered = sorted(known, key=lambda each: each.least_effect(repeats, plan.question) or inf)
    least = f"least of those with {LEAST_FREEDOM + 1} runs or more" if known is sure else "least"
    for block, which in ((ordered[0], least), (ordered[-1], "most")):
        effect = block.least_effect(repeats, plan.question)
        shown = "none" if effect is None else f"{_share(effect)} or more"
        ends.append(f"{shown} for {_name(block, plan)} ({which})")
    kind = _kind(plan)
    of = f" of {plan.blocks[0].block.workload}" if kind == "setting" else ""
    beyond = f" It takes more than {MOST_REPEATS} runs a side for {percent(plan.question.effects[0])}."
    return (
        f"Over {len(plan.blocks)} {kind}s{of}, {repeats} runs a side show a difference in {title} of {ends[0]}, "
        f"of {ends[1]} ({_say_given(plan.question)}).{beyond * _is_beyond_reach(plan)}"
    )


def _kind(plan: Plan) -> str:
    return "workload" if len({each.block.workload for each in plan.blocks}) > 1 else "setting"


def _say_tested(question: Question) -> str:
    several = (question.comparisons or 1) > 1
    return f"{question.comparisons} comparisons tested together" if several else ""


def _say_given(question: Question) -> str:
    return ", ".join(filter(None, [f"{percent(POWERS[0])} power", _say_tested(question)]))


def _spoken_needs(block: BlockPlan, question: Question) -> str:
    """Return the runs that each difference takes; those that take too many are one part, of the largest."""
    known = [(need.effect, need.as_seen[0]) for need in block.needs if need.effect is not None]
    found = [(effect, repeats) for effect, repeats in known if effect >= block.clock_step]
    hidden = [effect for effect, _ in known if effect < block.clock_step]
    beyond = [effect for effect, repeats in found if repeats is None]
    takes = [f"{repeats} for {percent(effect)}" for effect, repeats in reversed(found) if repeats is not None]
    if beyond:
        less = " or less" if len(beyond) > 1 else ""
        takes.append(f"more than {MOST_REPEATS} for {percent(max(beyond))}{less}")
        if not found[1:] and (least := block.least_effect(MOST_REPEATS, question)):
            takes.append(f"as {MOST_REPEATS} show {_share(least)} or more")
    takes[:1] = [first.replace(" for ", " runs a side for ") for first in takes[:1]]
    said = f" It takes {', '.join(takes)} ({_say_given(question)})." if takes else ""
    if hidden:
        longer = significant(block.clock_step / max(hidden), 2)
        said += f" These runs do not say how many it takes for {percent(max(hidden))}: "
        said += f"make {_REPEATS[-1]} to see them scatter, or runs of {longer} × as many steps."
    return said


def _share(effect: float) -> str:
    return f"{significant(100 * effect, 2)} %"


def _name(block: BlockPlan, plan: Plan) -> str:
    """Return the name of a workload or setting within the plan; settings of one workload go without it."""
    blocks = [each.block for each in plan.blocks]
    workload = block.block.workload
    name = tell_apart(block.block, blocks)
    return name.removeprefix(f"{workload} ") if {each.workload for each in blocks} == {workload} else name


def _overview(plan: Plan) -> Table:
    """Return the differences that some numbers of repeats show, a row for each workload."""

    def smallest(repeats: int, block: BlockPlan) -> str | None:
        effect = block.least_effect(repeats, plan.question)
        return None if effect is None else f"≥ {_share(effect)}"

    columns = (
        Column(None, "", partial(_name, plan=plan), left=True),
        Column(None, "runs here", "runs"),
        Column(None, "scatter", lambda each: percent(expm1(each.spread.seen))),
        *(Column(None, f"{each} runs", partial(smallest, each)) for each in plan.question.looks or _REPEATS[1:]),
    )
    return Table(columns, plan.blocks, most=MOST_ROWS)


def _advice(plan: Plan) -> str:
    question = plan.question
    within = any(effect <= question.delta for effect in question.effects)
    together = f", in {tested}" if (tested := _say_tested(question)) else ""
    together += ", over all planned looks" if question.looks else ""
    return (
        "Plan a new experiment with that many repeats on each side. Do not extend existing runs: anyone who looks and "
        f"then runs more finds false differences in more than {percent(question.alpha)} of cases. Power: the "
        f"probability that a difference of that size, or equality, is shown{together}. Cautious: for the largest "
        "spread that these runs allow (upper end of a one-sided 80 % interval)."
        + (f" A difference within {percent(question.delta)} is called =, unless --delta is smaller." if within else "")
    )


def _scatter(plan: BlockPlan) -> str:
    cells = sum(1 for cell in plan.block.cells if cell.runs)
    of_repeat = " of one repeat, tested in pairs," if plan.matched else ""
    if plan.clock_step:
        return (
            f"The {counted(plan.runs, 'run')} are equal: the clock of their lines has steps of 4 ms, "
            f"{percent(plan.clock_step)} of a run, so their scatter is taken to be {percent(expm1(plan.spread.seen))}."
        )
    return (
        f"Runs{of_repeat} that differ only by chance scatter by {percent(expm1(plan.spread.seen))}, cautiously "
        f"{percent(expm1(plan.spread.cautious))} (standard deviation; {plan.runs} runs in "
        f"{counted(cells, 'group')} of equal ones)."
    )


def _repeats(block: BlockPlan, plan: Plan) -> Table:
    def to_show(need: Need) -> str:
        if need.effect is None:
            return f"equality to within {percent(plan.question.delta)}"
        return f"a difference of {percent(need.effect)}"

    columns = [Column(None, "to show", to_show, left=True)]
    for at, power in enumerate(POWERS):
        columns.append(Column(None, f"{percent(power)} power", partial(_number, block, "as_seen", at)))
    for at, power in enumerate(POWERS):
        columns.append(Column(None, f"cautious, {percent(power)}", partial(_number, block, "cautious", at)))
    return Table(columns, block.needs)


def _number(block: BlockPlan, name: str, at: int, need: Need) -> str | None:
    repeats = getattr(need, name)[at]
    if need.effect is not None and need.effect < block.clock_step:
        return None
    return f"> {MOST_REPEATS}" if repeats is None else str(repeats)


def _needs(plan: Plan) -> Iterator[dict[str, Any]]:
    for block in plan.blocks:
        for need in block.needs:
            for power, repeats, cautious in zip(POWERS, need.as_seen, need.cautious, strict=True):
                yield {
                    "workload": block.block.workload,
                    "parameters": block.block.parameters,
                    "runs": block.runs,
                    "matched": block.matched,
                    "spread": block.spread.seen,
                    "spread_cautious": block.spread.cautious,
                    "to_show": "equality" if need.effect is None else "difference",
                    "effect": plan.question.delta if need.effect is None else need.effect,
                    "power": power,
                    "repeats": repeats,
                    "repeats_cautious": cautious,
                }
