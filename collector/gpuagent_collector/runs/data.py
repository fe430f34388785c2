"""The runs of a store and the facts about them: from run-level tables only, never from samples."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cached_property, partial
from itertools import compress
from math import isnan
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

import numpy as np

from gpuagent_collector.choices import Stat
from gpuagent_collector.json_cells import read_object, read_words
from gpuagent_collector.metrics import ITEMS, METRICS, Metric, by_group, further
from gpuagent_collector.query.ask import Ask, literal
from gpuagent_collector.query.execute import Parameter
from gpuagent_collector.run_sessions import are_rivals, on_other_machine, spans, takers
from gpuagent_collector.runs.arguments import Command, find_argument, is_path, name_commands
from gpuagent_collector.runs.columns import Columns, Floats, Piece, Rows
from gpuagent_collector.runs.facets import JOINT, Facet
from gpuagent_collector.runs.job_runs import is_job, read_job_facts
from gpuagent_collector.statistics.summaries import median

Record = Mapping[str, Any]
Shared = TypeVar("Shared")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run, and the values of its facets.

    Attributes:
        side: the value of the facet that is compared; None: no value.
        limits: resource limits of the run; None: unlimited.
        parameters: canonical JSON of its parameters; a program of the user's own has none.
        command: a program of the user's own with its arguments; empty for a built-in workload.
        node_count: number of nodes that ran it together.
        nodes: names of its nodes; devices: names of its GPUs, with their count; None: no GPU.
        until: the rule by which its experiment may stop early, such as `2% at 8,12,18`; None: by none.
        imported: the foreign program whose result it is; None: an agent ran it.
        started_at, ended_at: UTC; None: it did not start, or has not ended.
    """

    run_id: str
    side: str | None
    platform: str | None
    workload: str
    environment: str | None
    image: str | None
    interference: str | None
    limits: str | None
    device: str | None
    node_count: int = 1
    nodes: str | None
    experiment: str | None
    repeat: int | None
    status: str | None
    reason: str | None
    parameters: str
    command: Command = ()
    until: str | None = None
    imported: str | None = None
    started_at: datetime | None
    ended_at: datetime | None


run_id_of = attrgetter("run_id")


def distinct(of_runs: Mapping[str, Shared], runs: Iterable[Run]) -> Collection[Shared]:
    """Return what these runs have, each once: thousands of runs share it; nothing for runs that have none."""
    found = filter(None, map(of_runs.get, map(run_id_of, runs)))
    return {id(each): each for each in found}.values()


@dataclass(frozen=True, kw_only=True)  # without slots, for the cached property
class Facts:
    """The known facts about each run, by run_id.

    Attributes:
        metrics: the run's figures, by metric.
        sessions: rows of `sessions`, one for each agent process that took part.
        devices: rows of `session_devices`, one for each of its GPUs.
        texts: results that are texts or modes, by name: versions, precision, kinds of data; energy_method, as in
            run_energy.
        short: runs whose measured phase was too short for averaging sensors.
        gap_seconds: length of the missing data within the run; 0: unknown length.
        impossible: of the readings beyond physical limits that were dropped of its agents while it ran the source as
            `name` (None: a message or report), the quantity as `text`, and their number.
        neighbours: runs beside which others ran on one of their nodes.
        twins: hostnames of other machines that had the identity of one of its nodes at the same time.
        gpu_events: `number` and `text` of the Xid errors of its GPUs while it ran, each once.
        left: runs that left processes in the background, which were ended with them.
        thinned: of the lines with metrics that it printed, one in so many is stored.
        refused: what it reported that no store takes, in words.
        units: the unit in which each run reported its throughput.
        stats: further statistics of sampled quantities among the metrics.
        derived: metrics among them that are not stored, because they follow from prices.
        prices: the file with the requested prices; None: no prices were requested.
        unpriced: why runs have no cost, in words, where prices were requested.
    """

    metrics: Mapping[str, Mapping[str, float]]
    sessions: Mapping[str, list[Record]] = field(default_factory=dict)
    devices: Mapping[str, list[Record]] = field(default_factory=dict)
    texts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    short: frozenset[str] = frozenset()
    gap_seconds: Mapping[str, float] = field(default_factory=dict)
    impossible: Mapping[str, list[Record]] = field(default_factory=dict)
    neighbours: frozenset[str] = frozenset()
    gpu_events: Mapping[str, list[Record]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    left: frozenset[str] = frozenset()
    thinned: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    twins: Mapping[str, list[str]] = field(default_factory=dict)
    stats: tuple[Stat, ...] = ()
    derived: tuple[Metric, ...] = ()
    prices: str | None = None
    unpriced: Mapping[str, str] = field(default_factory=dict)

    def value(self, run: Run, metric: str) -> float | None:
        """Return a figure of a run; None: absent."""
        figure = self.columns.of(metric).item(self.columns.rows.get(run.run_id, -1))
        return None if isnan(figure) else figure

    @property
    def known(self) -> tuple[Metric, ...]:
        """Every metric, in the order in which they are shown."""
        stored = ((metric, *(further(metric, stat) for stat in self.stats if metric.quantity)) for metric in METRICS)
        return by_group([*(metric for metrics in stored for metric in metrics), *self.derived])

    def cover(self, run_ids: Iterable[str], stats: Iterable[Stat] = ()) -> bool:
        """Return whether they are about all of these runs, with these statistics beside the plain figures."""
        return self.columns.rows.keys() >= set(run_ids) and set(stats) <= set(self.stats)

    def unit(self, runs: Iterable[Run], metric: Metric) -> str:
        """Return the unit of a metric in these runs: that of their throughput where they count the same items."""
        if metric.unit != ITEMS:
            return metric.unit
        units = self.throughput_units(runs)
        return units.pop() if len(units) == 1 else ITEMS

    def throughput_units(self, runs: Iterable[Run]) -> set[str]:
        """Return the different units of the runs' throughputs, such as items/s and steps/s."""
        runs = list(runs)
        has_any = ~np.isnan(self.column(runs, "throughput"))
        return {self.units.get(run.run_id) or ITEMS for run in compress(runs, has_any)}

    def column(self, runs: Sequence[Run], metric: str) -> Floats:
        """Return the figure of each run; NaN: absent."""
        return self.columns.of(metric)[self._find_rows(runs)]

    def array(self, runs: Sequence[Run], metric: str) -> Floats:
        """Return the figure of each run that has it."""
        figures = self.column(runs, metric)
        return figures[~np.isnan(figures)]

    def values(self, runs: Sequence[Run], metric: str) -> list[float]:
        """Return the figure of each run that has it, as a list."""
        values: list[float] = self.array(runs, metric).tolist()
        return values

    def medians(self, runs: Sequence[Run]) -> dict[str, float]:
        """Return the median of each figure over the runs that have it."""
        arrays = {metric: self.array(runs, metric) for metric in self.columns.by_metric}
        return {metric: median(array) for metric, array in arrays.items() if array.size}

    def has(self, runs: Sequence[Run], metric: str) -> bool:
        """Return whether any of these runs has the figure."""
        return not np.isnan(self.column(runs, metric)).all()

    @cached_property
    def columns(self) -> Columns:
        """The figures by metric."""
        return self.metrics if isinstance(self.metrics, Columns) else Columns.of_runs(self.metrics)

    def _find_rows(self, runs: Sequence[Run]) -> Rows:
        """Return the rows of runs in the columns; those of a tuple, which cannot change, are found once."""
        if not isinstance(runs, tuple):
            return self.columns.find_rows(map(run_id_of, runs))
        known = self._known_rows.get(id(runs))
        if known is None:
            # With the tuple, or another one could get its id.
            known = self._known_rows[id(runs)] = runs, self.columns.find_rows(map(run_id_of, runs))
        return known[1]

    @cached_property
    def _known_rows(self) -> dict[int, tuple[tuple[Run, ...], Rows]]:
        return {}


def load_runs(
    ask: Ask,
    facet: Facet,
    *,
    workload: str | None = None,
    experiment: str | None = None,
    run_ids: Sequence[str] | None = None,
) -> list[Run]:
    """Return the runs of a workload and an experiment, or with these identities, oldest first; None: of all."""
    wanted = {"workload": workload, "experiment": experiment}
    given = {column: value for column, value in wanted.items() if value is not None}
    conditions = " AND ".join(f"run.{column} = ?" for column in given) or "true"
    values: list[Parameter] = list(given.values())
    if run_ids is not None:
        conditions += " AND run.run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))"
        values.append(list(run_ids))
    sides = f"[{', '.join(part.expression for part in facet.parts)}]"
    # To look all of them up would only take time.
    among = "SEMI JOIN wanted USING (run_id)" if values else ""
    groups = ask(_RUNS.format(sides=sides, where=conditions, among=among), values)
    # Thousands of runs have few different programs.
    programs = []
    commands: dict[str, set[Command]] = defaultdict(set)
    succeeded: dict[str, set[Command]] = defaultdict(set)
    for row in groups:
        given, workload = read_object(row["parameters"], "parameters"), row["workload"] or "unknown workload"
        # A program of the user's own is identified by its name alone.
        command = () if given else read_words(row["command"])
        if not given and row["node_count"] > 1:
            given = {"nodes": row["node_count"]}
        programs.append((workload, command, _canonical(given, facet)))
        commands[workload].add(command)
        if row["status"] == "succeeded":
            succeeded[workload].add(command)
    names = {workload: name_commands(sorted(of_one), succeeded[workload]) for workload, of_one in commands.items()}
    found: list[tuple[int, Run]] = []
    for row, (workload, command, parameters) in zip(groups, programs, strict=True):
        shared = {name: row[name] for name in _SHARED}
        shared |= {"workload": workload, "command": command, "parameters": parameters}
        shared["side"] = _side(row["sides"], facet, command, names[workload])
        starts, ends = _read_times(row["starts"]), _read_times(row["ends"])
        own = zip(row["numbers"], row["run_ids"], row["repeats"], starts, ends, strict=True)
        for number, run_id, repeat, start, end in own:
            run = Run(run_id=run_id, repeat=repeat, started_at=start, ended_at=end, **shared)
            found.append((number, run))
    found.sort(key=itemgetter(0))
    # A hostile agent can describe a run or its session twice.
    return list({run.run_id: run for _, run in found}.values())


def load_figures(
    ask: Ask,
    run_ids: Iterable[str],
    stat: Stat | None = None,
    stats: Iterable[Stat] = (),
    first: Sequence[str] = (),
) -> Columns:
    """Return the figures of the runs; of other metrics than the `first` ones, where these are named, when asked for.

    `stat` is the statistic of sampled quantities, None the usual one; further `stats` are metrics of their own.
    """
    # In order: equal questions are alike.
    chosen = sorted(set(run_ids))
    statistics = {"": f"coalesce({stat.value}_value, value)" if stat else "value"}
    statistics |= {f":{each.value}": f"{each.value}_value" for each in stats}

    def read(among: str, metrics: int) -> Iterator[Piece]:
        lists = " UNION ALL ".join(
            _LISTS.format(suffix=suffix, value=value, among=among) for suffix, value in statistics.items()
        )
        # As one parameter: thousands of runs would make the statement too long.
        runs = _FIGURES_AT_ONCE // metrics
        for start in range(0, len(chosen), runs):
            for row in ask(f"{_METRICS} {lists} ORDER BY name", [chosen[start : start + runs]]):
                yield row["name"], np.asarray(row["places"]) + start, row["values"]

    if not first:
        return Columns(chosen, read("true", len(METRICS)))
    named = f"metric IN ({', '.join(map(literal, first))})"
    others = partial(read, f"NOT {named}", len(METRICS))
    return Columns(chosen, read(named, len(first)), first=first, others=others)


def load_facts(
    ask: Ask,
    run_ids: Iterable[str],
    stat: Stat | None = None,
    stats: Iterable[Stat] = (),
    first: Sequence[str] = (),
) -> Facts:
    """Return the facts about the runs; the arguments are those of `load_figures`."""
    chosen, stats = sorted(set(run_ids)), tuple(stats)
    if any(map(is_job, chosen)):
        return Facts(**read_job_facts(ask, chosen))
    # Not all in one: a viewer's statement has only so many tables.
    asked = (_SESSIONS, _DEVICES, _TOLD, _HAPPENED)
    sessions, devices, told, happened = (ask(query, [chosen]) if chosen else [] for query in asked)
    by_fact: dict[str, list[Record]] = defaultdict(list)
    for row in (*told, *happened):
        by_fact[row["fact"]].append(row)
    found = {fact: _by_run(rows, chosen) for fact, rows in by_fact.items()}

    # The texts of each run by name, several of one name with commas; runs with the same rows share them.
    shared: dict[int, dict[str, str]] = {}
    for rows in found.get("text", {}).values():
        if id(rows) not in shared:
            of_rows = shared[id(rows)] = {}
            for each in rows:
                name, text = each["name"], each["text"]
                of_rows[name] = f"{of_rows[name]}, {text}" if name in of_rows else text
    texts = {run_id: shared[id(rows)] for run_id, rows in found.get("text", {}).items()}

    def only(fact: str, column: str) -> dict[str, Any]:
        return {run_id: row[column] for run_id, (row,) in found.get(fact, {}).items() if row[column] is not None}

    return Facts(
        metrics=load_figures(ask, chosen, stat, stats, first),
        sessions=_by_run(sessions, chosen),
        devices=_by_run([{"places": row["places"], **row["described"]} for row in devices], chosen),
        texts=texts,
        short=frozenset(found.get("measure_short", ())),
        gap_seconds=only("gap", "number"),
        impossible=found.get("impossible", {}),
        gpu_events=found.get("xid", {}),
        neighbours=frozenset(found.get("neighbour", ())),
        twins={run_id: [row["text"] for row in rows] for run_id, rows in found.get("twin", {}).items()},
        units=only("throughput", "text"),
        left=frozenset(only("left", "number")),
        thinned=only("thinned", "number"),
        refused=only("malformed", "text"),
        stats=stats,
    )


def _side(values: Sequence[str | None], facet: Facet, command: Command, names: Mapping[Command, str]) -> str | None:
    """Return the name of a run's side; `values` are those of the facet's parts, `names` those of commands."""
    named = []
    for part, value in zip(facet.parts, values, strict=True):
        if value is None:
            return None
        if part.argument is None:
            named.append(value)
        else:
            named.append(find_argument(command, part.argument) if part.argument else names[command] or "unknown")
    return JOINT.join(named)


def _canonical(values: Record, facet: Facet) -> str:
    """Return one text for equal parameters.

    The parameters that the facet compares are left out, and so is the rendezvous of a run's nodes. The location of data
    differs from place to place and is not compared, so all paths are alike; a workload reports what it read there. Nor
    are a server's command and address where a name says which server it is, and how to search in runs that do not.
    """
    apart = {*facet.parameters, "rendezvous"}
    if values.get("server"):
        apart |= {"serve", "url"}
    if values.get("find") is None:
        apart |= {name for name in values if name.startswith("find-")}
    alike = {name: value for name, value in values.items() if name not in apart}
    for name, value in alike.items():
        if is_path(value):
            # A model is its name, wherever it is.
            alike[name] = value.rstrip("/").rpartition("/")[2] if name == "model" else _PATH
    return json.dumps(alike, sort_keys=True)


def _read_times(microseconds: Sequence[int | None]) -> list[datetime | None]:
    """Return times of microseconds since 1970; thousands of them take DuckDB and Arrow ten times as long."""
    times: list[datetime | None] = np.array(microseconds, dtype="datetime64[us]").tolist()
    return times


# What each run has of its own, and what runs of one group have as it is stored.
_OWN = ("run_id", "repeat", "started_at", "ended_at")
_SHARED = tuple(one.name for one in fields(Run) if one.name not in {*_OWN, "side", "workload", "command", "parameters"})

# Replaces the value of every parameter that is a path.
_PATH = "(path)"


def _by_run(rows: Sequence[Record], run_ids: Sequence[str]) -> dict[str, list[Record]]:
    """Return the rows of each run that has some; runs with the same rows share them."""
    known: list[Record] = [{name: value for name, value in row.items() if name != "places"} for row in rows]
    numbers: dict[int, list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        for place in row["places"]:
            numbers[place].append(number)
    shared = {of_run: [known[number] for number in of_run] for of_run in set(map(tuple, numbers.values()))}
    return {run_ids[place]: shared[tuple(of_run)] for place, of_run in numbers.items()}


# To sort the names of each run takes most of a statement's time, and most runs have one.
_LISTED = """(
    SELECT run_id, left(any_value(words), 600) AS {name} FROM {rows} GROUP BY run_id HAVING min(name) = max(name)
    UNION ALL
    SELECT run_id, left(string_agg(words, ', ' ORDER BY name), 600) FROM {rows}
    WHERE run_id IN (SELECT run_id FROM {rows} GROUP BY run_id HAVING min(name) < max(name)) GROUP BY run_id
)"""

_RUNS = f"""
WITH wanted AS MATERIALIZED (SELECT * FROM runs AS run WHERE run_id IS NOT NULL AND {{where}}),
{takers("{among}")},
hosts AS (
    SELECT DISTINCT run_id, hostname AS name, hostname AS words FROM takers JOIN sessions USING (session_id)
),
gpu_kinds AS (
    SELECT run_id, coalesce(name, 'unknown GPU') AS name,
           if(count(DISTINCT device_id) > 1, count(DISTINCT device_id) || ' × ', '')
               || coalesce(any_value(name), 'unknown GPU') AS words
    FROM run_devices {{among}} LEFT JOIN session_devices USING (session_id, device_id)
    WHERE device_id IS NOT NULL GROUP BY ALL
),
places AS {_LISTED.format(name="nodes", rows="hosts")},
gpus AS {_LISTED.format(name="devices", rows="gpu_kinds")}
SELECT list(number) AS numbers, list(run_id) AS run_ids, list(repeat) AS repeats, list(epoch_us(started_at)) AS starts,
       list(epoch_us(ended_at)) AS ends, * EXCLUDE (number, run_id, repeat, started_at, ended_at)
FROM (
    SELECT run.run_id, {{sides}} AS sides, run.platform, run.workload, run.environment, run.image, run.interference,
           nullif(run.limits, 'none') AS limits,
           gpus.devices AS device, run.nodes AS node_count, places.nodes, run.experiment, run.repeat,
           if(run.is_excluded, 'excluded', run.status) AS status, run.reason, run.started_at, run.ended_at,
           CAST(run.parameters AS VARCHAR) AS parameters, CAST(run.command AS VARCHAR) AS command,
           json_extract_string(run.labels, '$.until') AS until,
           json_extract_string(run.labels, '$.imported') AS imported,
           row_number() OVER (ORDER BY run.queued_at, run.run_id) AS number
    FROM wanted AS run
    LEFT JOIN sessions AS session USING (session_id)
    LEFT JOIN places USING (run_id)
    LEFT JOIN gpus USING (run_id)
)
GROUP BY ALL"""  # noqa: S608 - names of the schema, as below

# DuckDB keeps several copies of the lists that it makes.
_FIGURES_AT_ONCE = 360_000

_METRICS = """
WITH chosen AS (
    SELECT run_id, CAST(place AS INTEGER) - 1 AS place
    FROM unnest(CAST(? AS VARCHAR[])) WITH ORDINALITY AS each(run_id, place)
), computed AS (  -- the view `metrics` would look at all runs, in each statement
    SELECT run_id, any_value(place) AS place, max(computed_at) AS computed_at
    FROM run_metrics JOIN chosen USING (run_id) GROUP BY run_id
), newest AS (
    SELECT * FROM run_metrics JOIN computed USING (run_id, computed_at)
)"""

# The sum of two larger figures would be infinite; NULL and NaN are no figures either.
_LISTS = """
SELECT metric || '{suffix}' AS name, list(place) AS places, list({value}) AS values FROM newest
WHERE abs({value}) < 1e300 AND {among} GROUP BY metric"""

_CHOSEN = """chosen AS (
    SELECT run_id, place - 1 AS place FROM unnest(CAST(? AS VARCHAR[])) WITH ORDINALITY AS each(run_id, place)
)"""

_SESSIONS = f"""
WITH {takers()}, {_CHOSEN}
SELECT list(place) AS places, sessions.* FROM takers JOIN chosen USING (run_id) JOIN sessions USING (session_id)
GROUP BY ALL ORDER BY hostname"""  # noqa: S608

# By number: to group tens of thousands of rows by what a device is takes three times as long.
_DEVICES = f"""
WITH {_CHOSEN}
SELECT list(DISTINCT place) AS places, any_value(described) AS described
FROM chosen JOIN run_devices USING (run_id) JOIN (
    SELECT *, row_number() OVER () AS number
    FROM (SELECT DISTINCT session_id, device_id, session_devices AS described FROM session_devices)
) USING (session_id, device_id)
GROUP BY number"""  # noqa: S608

# What was told of the runs themselves.
_TOLD = f"""
WITH {_CHOSEN}
SELECT fact, list(place) AS places, name, text, number
FROM (
    SELECT DISTINCT place, 'text' AS fact, name, NULL::DOUBLE AS number,
           if(name IN ('threads', 'tf32_matmul', 'tf32_cudnn'), value::BIGINT::VARCHAR, value_text) AS text
    -- The place of a run's trace or result, or the reason for a missing one, is no property of what it ran on.
    FROM chosen JOIN results USING (run_id)
    WHERE name NOT IN ('trace_file', 'trace_failed', 'counters_failed', 'source_file', 'source_time')
    UNION ALL BY NAME
    SELECT DISTINCT place, 'text' AS fact, 'energy_method' AS name, method AS text
    FROM (
        SELECT *, bool_or(phase = 'measure') OVER (PARTITION BY run_id) AS measured
        FROM run_energy JOIN chosen USING (run_id) WHERE step IS NULL
        QUALIFY computed_at = max(computed_at) OVER (PARTITION BY run_id)
    )
    WHERE phase IS NOT DISTINCT FROM CASE WHEN measured THEN 'measure' END
    UNION ALL BY NAME
    SELECT place, name AS fact, any_value(if(name = 'throughput', unit, name)) AS text
    FROM chosen JOIN results USING (run_id) WHERE name IN ('throughput', 'measure_short') GROUP BY place, name
    UNION ALL BY NAME  -- a program's own events can have these names too
    SELECT place, event AS fact, nullif(left(max(detail->>'message'), 300), '') AS text,
           nullif(max(TRY_CAST(if(event = 'left', detail->>'processes', detail->>'every') AS BIGINT)), 0) AS number
    FROM run_events JOIN chosen USING (run_id)
    WHERE event = 'left' AND rank IS NULL OR event = 'thinned' AND name = 'metrics'
        OR event = 'malformed' AND name = 'total' AND rank IS NULL
    GROUP BY place, event
)
WHERE text IS NOT NULL OR number IS NOT NULL
GROUP BY ALL ORDER BY name, text"""  # noqa: S608

# What happened to them, their nodes and GPUs meanwhile; `own` are their agents.
_HAPPENED = f"""
WITH {takers()}, {spans()}, {_CHOSEN}, lives AS (
    SELECT run_id, started_at, ended_at FROM runs
), stays AS (  -- the time of each run on each of its machines
    SELECT DISTINCT run_id, takers.node_id, hostname, boot_id, container, lives.started_at,
           coalesce(lives.ended_at, now() AT TIME ZONE 'UTC') AS ended_at
    FROM lives JOIN takers USING (run_id) LEFT JOIN sessions USING (session_id)
    WHERE lives.started_at IS NOT NULL
), crowded AS (  -- those that began before an earlier one on their node had ended, and these
    SELECT *
    FROM stays
    WINDOW in_order AS (PARTITION BY node_id ORDER BY started_at, run_id)
    QUALIFY started_at < max(ended_at) OVER (in_order ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
        OR lead(started_at) OVER in_order < ended_at
), own AS (
    SELECT * FROM takers JOIN chosen USING (run_id) JOIN lives USING (run_id)
)
SELECT fact, list(DISTINCT place) AS places, name, text, number
FROM (
    SELECT place, 'gap' AS fact, NULL AS name, NULL AS text, sum(greatest(epoch(to_time - from_time), 0)) AS number
    FROM (  -- the part of each that no earlier one covers: several sources can be silent at once
        SELECT place, to_time, greatest(from_time, max(to_time) OVER (
            PARTITION BY place ORDER BY from_time, to_time ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        )) AS from_time
        FROM (  -- the gaps of a run's own agents, cut to the run; one without bounds is where it was noticed
            SELECT place, greatest(coalesce(from_time, time), started_at) AS from_time,
                   least(coalesce(to_time, time), ended_at) AS to_time
            FROM own JOIN gaps USING (session_id)
            WHERE coalesce(from_time, time) <= ended_at AND coalesce(to_time, time) >= started_at
        )
    )
    GROUP BY place
    UNION ALL BY NAME
    SELECT place, 'impossible' AS fact, dropped.source AS name, quantity AS text, coalesce(sum(readings), 0) AS number
    FROM own JOIN impossible_readings AS dropped USING (session_id)
    WHERE coalesce(dropped.from_time, dropped.time) <= ended_at AND dropped.time >= started_at
    GROUP BY place, dropped.source, quantity
    UNION ALL BY NAME
    SELECT place, 'neighbour' AS fact
    FROM chosen JOIN crowded AS stay USING (run_id) JOIN crowded AS other
        ON other.node_id = stay.node_id AND NOT {on_other_machine("stay", "other")}
    WHERE stay.run_id <> other.run_id AND stay.started_at < other.ended_at AND other.started_at < stay.ended_at
    UNION ALL BY NAME
    SELECT place, 'twin' AS fact, coalesce(other.hostname, 'unnamed') AS text
    FROM own JOIN spans AS mine USING (session_id) JOIN spans AS other ON {are_rivals("mine", "other")}
    WHERE other.since <= ended_at AND other.until >= started_at
    UNION ALL BY NAME
    SELECT place, event AS fact, words AS text, number
    FROM chosen JOIN lives USING (run_id) JOIN (
        SELECT * FROM run_devices WHERE node_id IN (SELECT node_id FROM gpu_events WHERE event = 'xid')
    ) AS used USING (run_id)
    LEFT JOIN session_devices AS device USING (session_id, device_id) JOIN gpu_events AS happened
        -- The health of a MIG instance is that of its GPU. The agent polls once a second.
        ON happened.node_id = used.node_id AND happened.device_id = coalesce(parent_device_id, used.device_id)
        AND happened.time BETWEEN started_at AND ended_at + INTERVAL 2 SECONDS
    WHERE event = 'xid' AND number IS NOT NULL
)
GROUP BY ALL ORDER BY number DESC, text"""  # noqa: S608
