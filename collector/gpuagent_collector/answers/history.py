"""`collector history`: series of like runs over time, their changes of level, and the facts that changed there."""

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial
from itertools import chain, pairwise
from operator import attrgetter
from statistics import median
from typing import Any

from gpuagent_collector.choices import Stat
from gpuagent_collector.compare.caveats import compare_disturbances, find_disturbances
from gpuagent_collector.compare.figures import DEFAULT_PRIMARIES
from gpuagent_collector.metrics import BY_NAME, ITEMS, STEPS, Metric, hint_at
from gpuagent_collector.present.answer import Answer, Caveat, Legend, Section
from gpuagent_collector.present.human import change, in_unit, notation, significant
from gpuagent_collector.present.table import Column, Table
from gpuagent_collector.query.ask import Ask, literal
from gpuagent_collector.runs.arguments import Command, name_commands
from gpuagent_collector.runs.cells import first_few
from gpuagent_collector.runs.data import Facts, Run, load_facts
from gpuagent_collector.runs.facets import find_facet
from gpuagent_collector.runs.find import Choice, find_runs
from gpuagent_collector.runs.job_runs import are_jobs, name_of_job, take_jobs
from gpuagent_collector.runs.like import LikeKey, like_key
from gpuagent_collector.runs.releases import Release, States, find_releases, load_states
from gpuagent_collector.runs.repeating import Recorded, find_recorded, find_varied
from gpuagent_collector.runs.words import narrow, percent, spoken, telling, write_command
from gpuagent_collector.statistics.changes import LEAST_PART, find_changes, find_least_size, share_level
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.text import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Choice):
    """A request for a history.

    Attributes:
        metric: None: throughput, or the run's duration where no run reports it.
        stat: the statistic of sampled quantities; None: the usual one.
        alpha: the probability that any of the histories without a change shows one, at most.
    """

    metric: str | None = None
    stat: Stat | None = None
    alpha: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A stretch of a series without a shown change.

    Attributes:
        first, last: times of its first and last run.
        values: their number, days or runs as in the series.
        runs: the number of runs.
        p_value: of the change before it; None: the series begins here.
        median: of the runs; lowest, highest: of the values.
        releases: facts that changed between the last run of the level before and the first of this one.
        disturbed: what disturbed far more, or far fewer, of its runs than of those before, with their numbers.
        event: the name of such a fact that changed just there, and nowhere else; None: there is none.
    """

    first: datetime
    last: datetime
    values: int
    runs: int
    lowest: float
    median: float
    highest: float
    p_value: float | None
    releases: tuple[Release, ...]
    disturbed: tuple[str, ...]
    event: str | None

    @property
    def changed(self) -> list[str]:
        """Return everything recorded that changed where the level begins."""
        return [*(release.words for release in self.releases), *self.disturbed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Like runs of one node over time, with their throughput in one unit.

    Attributes:
        command: that of a program of the user's own, of its last run; paths may be others in the other runs.
        run_ids: its runs.
        like: that in which they agree.
        levels: at least one, in the order of time.
        quiet: facts that changed where no change of level is shown.
        is_daily: whether each value is the median of a day; otherwise each is a run's.
        days: number of days with runs.
        nodes: number of nodes; of more than one, as jobs have, facts are not compared.
        level: at which it is tested; None: there are too few values for a change.
    """

    workload: str
    parameters: str
    command: Command
    run_ids: tuple[str, ...]
    like: LikeKey
    circumstances: str
    node: str
    levels: tuple[Level, ...]
    quiet: tuple[Release, ...]
    is_daily: bool
    days: int
    nodes: int
    level: float | None
    unit: str

    @property
    def is_tested(self) -> bool:
        """Return whether there are enough values for a change."""
        return self.level is not None

    @property
    def may_be_days(self) -> bool:
        """Return whether a change may be what the runs of a day have in common."""
        return len(self.levels) > 1 and not self.is_daily and self.days > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All series, the longest first.

    Attributes:
        least: the values that each series takes for all of them to be tested.
        recorded: the options of the runs of the first work; None: some series is tested.
        without: workloads none of whose runs has the metric that was chosen for all of them.
        caveats: what disturbed the runs of series that changed, which may be the change.
    """

    request: Request
    metric: Metric
    unit: str
    least: int
    series: tuple[Series, ...]
    recorded: Recorded | None
    without: tuple[str, ...]
    caveats: tuple[Caveat, ...]

    @property
    def changes(self) -> list[tuple[Series, Level, Level]]:
        """All changes, the newest first: the series, and the levels before and after."""
        found = [(series, *levels) for series in self.series for levels in pairwise(series.levels)]
        return sorted(found, key=lambda change: change[-1].first, reverse=True)

    @property
    def every(self) -> str:
        """The number of all histories, in words."""
        return "both" if len(self.series) == 2 else f"all {len(self.series)}"

    @property
    def lacks_runs(self) -> bool:
        """Return whether these are too few runs of one experiment, which new runs do not join."""
        return bool(self.request.experiment) and not any(series.is_tested for series in self.series)

    @property
    def continued(self) -> Series:
        """The series that new runs continue: the first one, or the newest that differs from it in its unit alone."""
        first = self.series[0]
        alike = [one for one in self.series if (one.like, one.node) == (first.like, first.node)]
        return max(alike, key=lambda one: one.levels[-1].last)

    @property
    def first_work(self) -> tuple[Series, ...]:
        """The series of the workload, node, platform and unit of the one that new runs continue."""
        work = attrgetter("workload", "node", "like.platform", "unit")
        return tuple(one for one in self.series if work(one) == work(self.continued))

    @property
    def same_work(self) -> tuple[Series, ...]:
        """The series that differ from the one that new runs continue in nothing but their node."""
        first = self.continued
        return tuple(one for one in self.series if (one.like, one.unit) == (first.like, first.unit))


def study_history(ask: Ask, request: Request) -> History:
    """Return the history of a workload's figures.

    Raises:
        MisuseError: a workload, experiment, condition or metric is unknown or invalid.
        GpuAgentError: no run has the metric.
    """
    if request.metric is not None and request.metric not in BY_NAME:
        raise MisuseError(f"--metric {request.metric} is not stored with runs; {hint_at(request.metric, BY_NAME)}")
    found = find_runs(ask, find_facet("platform"), **request.conditions)
    known = [run for run in found if run.status == "succeeded" and run.started_at]
    runs = [run for run in known if run.node_count == 1 or request.jobs]
    facts = load_facts(ask, [run.run_id for run in runs], request.stat)
    names = [request.metric] if request.metric else DEFAULT_PRIMARIES
    name = next((one for one in names if facts.values(runs, one)), None)
    if name is None:
        raise GpuAgentError(f"no run on a single node has the metric {names[0]}; `collector runs` lists the runs")
    metric = BY_NAME[name]
    states = load_states(ask, runs, facts)
    # Like runs of each node and unit, oldest first; their image may change in the course of time.
    groups: dict[tuple[object, ...], list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: (run.started_at, run.run_id)):
        if facts.value(run, name) is not None:
            # Jobs of a cluster are wherever there was room.
            place = run.platform if request.jobs else run.nodes
            groups[like_key(run, "image"), place, facts.unit([run], metric)].append(run)
    valued = [(members, *_values(members, facts, name)) for members in groups.values()]
    sizes = [len(values) for _, _, values, _ in valued]
    series = [
        _make_series(*of_one, level, states, facts, metric)
        for of_one, level in zip(valued, share_level(sizes, request.alpha), strict=True)
    ]
    changed = {run_id for one in series if one.levels[1:] for run_id in one.run_ids}
    # Jobs of another tool have no such facts.
    disturbed = [run for run in runs if run.run_id in changed] if not request.jobs else []
    history = History(
        request=request,
        metric=metric,
        unit=facts.unit(runs, metric),
        least=find_least_size(sizes, request.alpha),
        series=tuple(sorted(series, key=lambda one: (-sum(each.runs for each in one.levels), one.workload, one.node))),
        recorded=None,
        without=()
        if request.metric
        else tuple(sorted({run.workload for run in runs} - {one.workload for one in series})),
        caveats=tuple(find_disturbances({"": disturbed}, facts)) if disturbed else (),
    )
    # Runs of one day more are not made by a single command, and new runs are not of the same experiment.
    if request.jobs or request.experiment or any(one.is_tested or one.is_daily for one in series):
        return history
    recorded = find_recorded(ask, [run_id for one in history.first_work for run_id in one.run_ids])
    if history.continued.unit == STEPS:
        # Runs that count items would begin another history.
        steps = {name: value for name, value in recorded.steps.items() if name != "items_per_step"}
        recorded = replace(recorded, steps=steps)
    return replace(history, recorded=recorded)


def _values(runs: Sequence[Run], facts: Facts, metric: str) -> tuple[list[int], list[float], bool]:
    """Return the index of the first run of each value, the values, and whether each is the median of a day.

    Runs of one day have much in common: where there are enough days, each of them counts once.
    """
    days: dict[date, list[int]] = defaultdict(list)
    for index, run in enumerate(runs):
        if run.started_at:
            days[run.started_at.date()].append(index)
    figures = facts.values(runs, metric)
    if len(days) >= 2 * LEAST_PART:
        starts = [members[0] for members in days.values()]
        return starts, [median(figures[index] for index in members) for members in days.values()], True
    return list(range(len(runs))), figures, False


def _make_series(
    runs: Sequence[Run],
    starts: Sequence[int],
    values: Sequence[float],
    is_daily: bool,
    level: float | None,
    states: States,
    facts: Facts,
    metric: Metric,
) -> Series:
    changes = find_changes(values, alpha=level) if level else []
    ends = [*(change.index for change in changes), len(values)]
    p_values = [None, *(change.p_value for change in changes)]
    # Facts of several nodes, as jobs have them, differ without any change.
    nodes = len({run.nodes for run in runs})
    releases = find_releases(runs, states) if nodes == 1 else []
    is_known = nodes == 1 and not are_jobs([runs[0].run_id])
    changed = Counter(release.event for _, release in releases)
    times = [run.started_at for run in runs if run.started_at]
    levels: list[Level] = []
    for start, end, p_value in zip([0, *ends[:-1]], ends, p_values, strict=True):
        first, last = starts[start], (starts[end] if end < len(values) else len(runs)) - 1
        # A change of level is placed to about one value.
        near = range(starts[start - 1] + 1, starts[start + 1] + 1) if p_value is not None else range(0)
        sides = (runs[first - levels[-1].runs : first], runs[first : last + 1]) if levels and is_known else None
        there = [release for index, release in releases if index in near]
        # What changed only here divides the runs as the levels do.
        only = (release.event for index, release in releases if index == starts[start] and changed[release.event] == 1)
        levels.append(
            Level(
                first=times[first],
                last=times[last],
                values=end - start,
                runs=last - first + 1,
                lowest=min(values[start:end]),
                median=median(facts.values(runs[first : last + 1], metric.name)),
                highest=max(values[start:end]),
                p_value=p_value,
                releases=tuple(there),
                disturbed=tuple(compare_disturbances(*sides, facts)) if sides else (),
                event=None if p_value is None else next(only, None),
            )
        )
    beside = {release for one in levels for release in one.releases}
    return Series(
        workload=runs[-1].workload,
        parameters=runs[-1].parameters,
        command=runs[-1].command,
        run_ids=tuple(run.run_id for run in runs),
        like=like_key(runs[-1], "image"),
        circumstances=", ".join(each for each in like_key(runs[-1], "image").circumstances if each != "none"),
        node=(runs[-1].nodes if nodes == 1 else runs[-1].platform) or "unknown node",
        levels=tuple(levels),
        quiet=tuple(release for _, release in releases if release not in beside),
        is_daily=is_daily,
        days=len({time.date() for time in times}),
        nodes=nodes,
        level=level,
        unit=facts.unit(runs, metric),
    )


# Of the table, on the first screen.
_FIRST_HISTORIES = 8


def answer(history: History) -> str:
    """Return the newest change, how many more there are, and what was looked at."""
    if not history.without:
        return _changes(history)
    others = f"No {spoken(history.metric, None)} is known of {first_few(history.without)}"
    return f"{_changes(history)} {others}; --metric run_seconds shows durations."


def _changes(history: History) -> str:
    title = spoken(history.metric, history.request.stat)
    changes = history.changes
    tested = sum(series.is_tested for series in history.series)
    if not tested:
        return _untested(history, title)
    seen = "One history was tested" if tested == 1 else f"{tested} histories were tested"
    few = next((series for series in history.series if not series.is_tested), None)
    seen += f"; it takes {_needs(history, few)} of each to test {history.every}." if few else "."
    if not changes:
        return f"No change of {title} was found. {seen}"
    series, before, after = changes[0]
    moved = "rose" if after.median > before.median else "fell"
    scale = notation([before.median, after.median], series.unit)
    levels = f"from {scale.write_bare(before.median)} to {scale.write(after.median)}"
    evidence = f"{_change(before, after)}, {before.values} and {after.values} {_counted(series)}"
    changed = ", ".join(after.changed)
    cause = f"Changed at that time: {changed}." if changed else "No recorded fact changed at that time."
    if series.nodes > 1:
        cause = f"They were on {series.nodes} nodes, so facts were not compared."
    sentence = (
        f"{_name_in_full(series, history)}: {title} {moved} {levels} on {_time(series, after.first)} "
        f"({evidence}, p = {significant(after.p_value or 0.0, 2)})."
    )
    doubted = any(series.may_be_days for series in history.series)
    doubt = f"With fewer than {2 * LEAST_PART} days, a difference between days looks like a change." if doubted else ""
    return " ".join(filter(None, [sentence, cause, _older(history), doubt, seen]))


def _needs(history: History, series: Series) -> str:
    """Return how many runs such a series needs to be tested, whichever of the others have as many by then."""
    return f"{history.least} {_counted(series)}"


def _older(history: History) -> str:
    """Return the changes before the newest one, each with its time and with the name of another history."""
    (newest, *_), *older = history.changes
    said = []
    for series, before, after in older:
        of = "" if series is newest else f"{_name_in_full(series, history)} "
        said.append(f"{of}{_change(before, after)} on {_time(series, after.first)}")
    return f"Before that: {first_few(said)}." if said else ""


def _name_in_full(series: Series, history: History) -> str:
    """Return the workload of a series, what sets it apart from the others on its node, the node and its platform."""
    there = [one for one in history.series if one.node == series.node]
    name = dict(zip(map(id, there), _names(there), strict=True))[id(series)]
    own = name if series.workload in name.split(" ") else f"{series.workload} {name}"
    several = len({one.like.platform for one in history.series}) > 1
    platform = series.like.platform if several and series.like.platform not in (None, series.node) else None
    return f"{own} on {series.node}{f' ({platform})' if platform else ''}"


def _counted(series: Series) -> str:
    return "days" if series.is_daily else "jobs" if are_jobs(series.run_ids) else "runs"


def _time(series: Series, time: datetime) -> str:
    """Return a time as a level's values have it: by the day, or by the minute in UTC."""
    return f"{time:%Y-%m-%d}" if series.is_daily else f"{time:%Y-%m-%d %H:%M}"


def _untested(history: History, title: str) -> str:
    """Return what runs show that are too few for a change: the level of each setting, and what it takes."""
    series = history.series
    medians = [one.levels[0].median for one in series]
    runs = [one.levels[0].values for one in series]
    units = _counted(min(series, key=lambda one: one.is_daily))
    unit = units.removesuffix("s")
    write = in_unit(series[0].unit)
    # Those of other work or in another unit have no range.
    is_one = len({(one.workload, one.unit) for one in series}) == 1
    among = f"It is {write(medians[0])}."
    each = f"{min(runs)} to {counted(max(runs), unit)}" if min(runs) < max(runs) else counted(runs[0], unit)
    if series[1:]:
        # A setting on several nodes has a history on each.
        what, several = ("history", "histories") if len({one.node for one in series}) > 1 else ("setting", "settings")
        among = f"It is {write(min(medians))} to {write(max(medians))} in {len(series)} {several}." if is_one else ""
        each += f" of each {what}"
    command, missing, made = _repeat(history)
    follows = [history.recorded.lacking] if history.recorded and command else []
    # Elsewhere they would begin another history.
    is_placed = history.recorded and (history.recorded.nodes or len({one.node for one in series}) > 1)
    there = f", run on {series[0].node}," if is_placed else ""
    of = " of each setting" if made == len(series) else f" of each of {made} settings"
    if made == 1:
        is_only = len({(one.workload, one.parameters, one.like.identity, one.unit) for one in series}) == 1
        of = "" if is_only else " of the first setting"
    if command and command.startswith("collector launch"):
        nodes = first_few([one.node for one in history.same_work])
        places = f"each of {' and '.join(nodes.rsplit(', ', 1))}" if history.same_work[1:] else nodes
        follows.append(f"The next command asks a collector for {counted(missing, 'more run')}{of} on {places}.")
    elif command:
        platform, are_several = history.continued.like.platform, len({one.like.platform for one in series}) > 1
        on = f" on {platform}; other platforms need theirs too" if are_several else ""
        follows.append(f"The next command{there} makes {counted(missing, 'more run')}{of}{on}.")
    if history.lacks_runs:
        follows.append("New runs make another experiment; the next command counts the runs of all experiments.")
    alike = "setting on one node" + (f" to test {history.every}" if series[1:] else "")
    if history.request.jobs:
        alike = "user and name with as many CPUs, GPUs and nodes"
    takes, are = f"it takes {history.least} {units} of one {alike}", "is" if max(runs) == 1 else "are"
    nothing = f"Nothing shows yet whether {title} changed over time: {takes}, and there {are} {each}."
    return " ".join(filter(None, [nothing, among, *follows]))


def _change(before: Level, after: Level) -> str:
    if before.median > 0 and after.median > 0:
        return change(after.median / before.median)
    return f"{significant(before.median)} → {significant(after.median)}"


def answer_history(ask: Ask, **asked: Any) -> Answer:
    """Answer the command; `asked` are the fields of a request."""
    return render(study_history(ask, Request(**take_jobs(ask, asked))))


def render(history: History) -> Answer:
    """Return the answer; CSV has a line for each level."""
    tables = [_levels(series) for series in history.series]
    both = list(zip(history.series, tables, strict=True))
    legend = _legend(history)
    has_changed = any(series.levels[1:] for series in history.series)
    return Answer(
        heading=f"History of {spoken(history.metric, history.request.stat)}",
        text=answer(history),
        parts=[
            _overview(history),
            *([Legend(legend.partition(". ")[0] + ".", "", is_spare=True)] if has_changed else []),
        ],
        sections=[
            *(
                Section(" ".join(filter(None, _settings(series).values())), [table, *_notes(series)], is_detail=True)
                for series, table in both
            ),
            Section("How to read this", [legend], is_detail=True),
        ],
        caveats=history.caveats,
        next=_next(history),
        more="each history with its levels and how to read this",
        facts={
            "metric": history.metric.name,
            "unit": history.unit,
            "alpha": history.request.alpha,
            "series": [
                {
                    **(table.about or {}),
                    "parameters": json.loads(series.parameters),
                    "unit": series.unit,
                    "is_daily": series.is_daily,
                    "days": series.days,
                    "is_tested": series.is_tested,
                    "level": series.level,
                    "levels": table,
                    "changed_without_effect": [release.words for release in series.quiet],
                }
                for series, table in both
            ],
        },
        csv=tables,
    )


def _next(history: History) -> str | None:
    """Return the command that compares the runs before the newest change with those after it, or makes missing ones.

    Where nothing changed, it shows the longest history's runs.
    """
    request = history.request
    if request.jobs:
        return write_command("peers", {}, sides=[name_of_job(history.series[0].run_ids[-1])])
    if history.recorded:
        return _repeat(history)[0]
    named = {"--metric": request.metric, "--stat": request.stat.value if request.stat else None}
    if history.lacks_runs:
        workloads = {series.workload for series in history.series}
        metric = None if history.metric.name == DEFAULT_PRIMARIES[0] else history.metric.name
        asked = {"--where": request.where, **named, "--metric": metric}
        return write_command("history", asked, *(workloads if len(workloads) == 1 else ()))
    if not history.changes:
        return write_command("show", {}, history.series[0].workload)
    series, before, after = history.changes[0]
    event = after.event if len(series.levels) == 2 else None
    parameters, conditions = _select(series, history.series)
    if series.levels[2:]:
        conditions.append(f"started_at >= '{_border(series.levels[-3], before)}'")
    asked = {
        "--before": event or _border(before, after).isoformat(),
        **request.words,
        "--workload": series.workload,
        "--where": narrow(request.where, parameters, conditions),
        **named,
    }
    return write_command("compare", asked)


def _border(before: Level, after: Level) -> datetime:
    """Return a time between two levels, in whole seconds where there is one."""
    whole = after.first.replace(microsecond=0)
    return whole if before.last < whole else after.first


# Facets that are columns of the view `runs`.
_COLUMNS = ("environment", "interference", "limits", "platform")


def _select(series: Series, every: Sequence[Series]) -> tuple[dict[str, object], list[str]]:
    """Return the parameters and SQL conditions that only runs of a series have among those of its workload."""

    def settings(one: Series) -> dict[str, object]:
        facets = {name: one.like.facets[name] for name in _COLUMNS}
        own = {"command": one.like.identity, **facets, "node": one.node, "unit": one.unit}
        return {**json.loads(one.parameters), **own}

    others = [one for one in every if one.workload == series.workload and one is not series]
    given = [*map(settings, others)]
    parameters, conditions = dict[str, object](), list[str]()
    for name, value in telling({**dict.fromkeys(chain(*given)), **settings(series)}, given).items():
        if name == "command":
            differing = [one.command for one in others if one.like.identity != value]
            conditions.append(_match_command(series.command, differing))
        elif name == "node":
            nodes = [literal(node) for node in series.node.split(", ")]
            is_there = f"IN ({', '.join(nodes)})" if nodes[1:] else f"= {nodes[0]}"
            known = f"(SELECT session_id FROM sessions WHERE hostname {is_there})"  # noqa: S608 - printed
            conditions.append(f"session_id IN {known}")
        elif name == "unit":
            # A throughput without one is of items.
            does, has = ("NOT IN", "<>") if value == ITEMS else ("IN", "=")
            of_unit = f"name = 'throughput' AND unit {has} {literal(str(value))}"
            conditions.append(f"run_id {does} (SELECT run_id FROM results WHERE {of_unit})")  # noqa: S608 - printed
        elif name in _COLUMNS:
            conditions.append(f"{name} = {literal(str(value))}" if value else f"coalesce({name}, 'none') = 'none'")
        elif value is None:
            conditions.append(f"json_extract_string(parameters, {literal(name)}) IS NULL")
        else:
            parameters[name] = value
    return parameters, conditions


def _match_command(command: Command, others: Sequence[Command]) -> str:
    """Return the SQL condition that the runs of a command meet, and those of the others do not.

    It has the words that the others lack; paths are elsewhere on each node.
    """
    own = dict.fromkeys((word for word in command if "/" not in word), True)
    words = telling(own, [dict.fromkeys(other, True) for other in others])
    if any(words.keys() <= set(other) for other in others):
        return f"command::VARCHAR[] = {literal(command)}"
    return " AND ".join(f"list_contains(command::VARCHAR[], {literal(word)})" for word in words)


def _repeat(history: History) -> tuple[str | None, int, int]:
    """Return the command that goes on with the histories of this node, how often, and of how many settings.

    Of settings that no single command makes, it goes on with the first one.
    """
    first, recorded = history.continued, history.recorded
    if recorded is None:
        return None, 0, 0

    def lack(series: Sequence[Series]) -> int:
        return history.least - min(one.levels[0].runs for one in series)

    nodes, missing = [one.node for one in history.same_work], lack(history.same_work)
    if launch := recorded.launch_command(first.command, first.workload, missing, nodes):
        return launch, missing, 1
    missing, parameters = lack(history.first_work), dict.fromkeys(one.parameters for one in history.first_work)
    every = None
    if varied := find_varied([json.loads(each) for each in parameters]):
        every = recorded.workload_command(first.workload, varied, missing)
    elif len(parameters) == 1:
        every = recorded.repeat_command([one.command for one in history.first_work], first.workload, missing)
    if every:
        return every, missing, len(history.first_work)
    missing = lack([first])
    return recorded.repeat_command([first.command], first.workload, missing), missing, 1


def _overview(history: History) -> Table:
    """Return a row for each history, those that changed first: its level now, and its last change."""
    names = {id(series): name for series, name in zip(history.series, _names(history.series), strict=True)}

    def last_change(series: Series) -> str | None:
        if not series.is_tested:
            return f"needs {_needs(history, series)}"
        return _change(*series.levels[-2:]) if series.levels[1:] else "none shown"

    columns: tuple[Column, ...] = (
        Column(None, "history", lambda series: names[id(series)], left=True),
        Column(None, "runs", lambda series: sum(level.runs for level in series.levels)),
        Column(None, "level", lambda series: in_unit(series.unit)(series.levels[-1].median)),
        Column(None, "since", lambda series: _time(series, series.levels[-1].first)),
        Column(None, "change", last_change),
    )
    if not any(series.is_tested for series in history.series):
        columns = (*columns[:2], Column(None, "median", columns[2].value), Column(None, "range", _range))
    elif not any(series.levels[1:] for series in history.series):
        # Each level is as old as its history.
        columns = (*columns[:3], columns[4])
    newest = {id(series): place for place, (series, *_) in reversed(list(enumerate(history.changes)))}
    ordered = sorted(history.series, key=lambda series: newest.get(id(series), len(history.changes)))
    return Table(columns, ordered, most=_FIRST_HISTORIES, can_shrink=True)


def _range(series: Series) -> str:
    level = series.levels[-1]
    scale = notation([level.median], series.unit)
    return f"{scale.write_bare(level.lowest)} to {scale.write(level.highest)}"


def _levels(series: Series) -> Table:
    before = {after: level for level, after in pairwise(series.levels)}
    columns = (
        Column("first", "from", show=partial(_time, series), left=True),
        Column("last", "to", show=partial(_time, series), left=True),
        Column("values", _counted(series), left=True),
        Column("runs"),
        Column("median", "median", unit=series.unit, left=True),
        Column(None, "change", lambda level: _change(before[level], level) if level in before else None, left=True),
        Column("p_value", "p", show=partial(significant, digits=2), left=True),
        Column("changed", "changed there", lambda level: level.changed, left=True),
    )
    names = ("workload", "node", "parameters", "command", "circumstances")
    return Table(columns, series.levels, about={name: getattr(series, name) for name in names})


def _settings(series: Series) -> dict[str, str]:
    """Return everything in which the runs of a series agree, as it is written."""
    given = {name: value for name, value in json.loads(series.parameters).items() if value is not None}
    return {
        "node": f"{series.node}:",
        "workload": series.workload,
        **{name: f"{name}={value}" for name, value in given.items()},
        "command": shlex.join(series.command or ()),
        "circumstances": f"· {series.circumstances}",
    }


def _names(every: Sequence[Series]) -> Iterator[str]:
    """Yield that in which each series differs from the others; of a single one its workload."""
    commands = {
        workload: name_commands([series.command for series in every if series.workload == workload])
        for workload in {series.workload for series in every}
    }
    held = [set(series.circumstances.split(", ")) for series in every]
    settings = []
    for series in every:
        apart = [name for name in series.circumstances.split(", ") if any(name not in other for other in held)]
        command = commands[series.workload][series.command] if series.command else ""
        own = {"command": command, "circumstances": ", ".join(apart), "unit": f"in {series.unit}"}
        settings.append({**_settings(series), **own})
    for number, own in enumerate(settings):
        chosen = telling(own, [*settings[:number], *settings[number + 1 :]])
        if chosen.get("command"):
            chosen = _named_once(chosen, own["workload"])
        yield " ".join(str(text) for text in chosen.values() if text).removesuffix(":") or own["workload"]


def _named_once(chosen: Mapping[str, object], workload: str) -> dict[str, object]:
    """Return a series' distinguishing settings with the workload's name once, or not where all have it."""
    words = str(chosen["command"]).split(" ")
    if workload not in words:
        return dict(chosen)
    at = words.index(workload)
    variables = [word for word in words[:at] if "=" in word]
    shown = " ".join([*variables, *words[at if "workload" in chosen else at + 1 :]]) or workload
    return {name: shown if name == "command" else value for name, value in chosen.items() if name != "workload"}


def _notes(series: Series) -> Iterator[str]:
    if series.quiet:
        quiet = [f"{release.words}{f' ({release.time:%Y-%m-%d})' if release.time else ''}" for release in series.quiet]
        yield f"Changed without a measurable effect: {', '.join(quiet)}."
    if series.may_be_days:
        yield f"Each run counts, since {series.days} days are too few: what a day has in common shows as a change too."


def _legend(history: History) -> str:
    request = history.request
    jobs = "How jobs ended is not recorded, so those that failed count too." if request.jobs else ""
    return (
        "A level is a stretch without a shown change. Changes are found by binary segmentation of ranks, with the "
        f"p-value of random orders of the same values. All histories share {percent(request.alpha)} by their numbers "
        "of runs: it is at most so likely that any without a change shows one. Where there are runs of "
        f"{2 * LEAST_PART} or more days, each day counts once, with its median: runs of a day have much in common. "
        "With fewer days each run counts, and a difference between days shows as a change. Days that resemble their "
        "neighbours give more false changes. A fact that changed at the same time need not be the cause. Changes have "
        f"no intervals, because their places were chosen by their size: `collector compare --before EVENT` has. {jobs}"
    ).rstrip()
