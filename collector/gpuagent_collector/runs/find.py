"""Selection of runs: by workload, experiment and condition, imported ones beside those of gpuagent, the median one."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from gpuagent_collector.choices import MEASURED_MARK
from gpuagent_collector.query.ask import Ask, literal
from gpuagent_collector.query.condition import parenthesised
from gpuagent_collector.runs.data import Facts, Run, load_runs
from gpuagent_collector.runs.facets import Facet
from gpuagent_collector.runs.job_runs import name_of_job, read_job_runs
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.naming import WARM_UP

# Lengths of prompts and answers; measured means differ a little between repeats of one setting.
_LENGTHS = ("input", "output")
_ALIKE_LENGTHS = 0.05

# Parameters of which null, on either side, stands for what the server has: it agrees with any value.
_OPEN = frozenset({"model"})


def join_imported(runs: Sequence[Run]) -> list[Run]:
    """Return the runs, the imported ones with the parameters of the agent's runs that they agree with.

    A file says less than a run of gpuagent: not the seed, or how long it warmed up. An imported run joins the runs of
    its workload with which it agrees in everything that it states, if these agree with one another. Otherwise it keeps
    its own parameters, with the lengths of the first imported run whose measured means are within 5 %. The agent's runs
    never change.
    """
    own: dict[str, dict[str, Mapping[str, Any]]] = {}
    for run in runs:
        if run.imported is None:
            of_workload = own.setdefault(run.workload, {})
            if run.parameters not in of_workload:
                of_workload[run.parameters] = json.loads(run.parameters)
    first = _first_alike([run for run in runs if run.imported is not None])
    return [run if run.imported is None else _join(first[run.run_id], own.get(run.workload, {})) for run in runs]


def _first_alike(runs: Sequence[Run]) -> dict[str, Run]:
    """Return the runs by their ids, with the parameters of the first one that has the same but for slight lengths."""
    firsts: dict[tuple[str, str], list[tuple[Run, list[Any]]]] = {}
    found = {}
    for run in sorted(runs, key=lambda each: each.run_id):
        stated = json.loads(run.parameters)
        lengths = [stated.pop(name, None) for name in _LENGTHS]
        known = firsts.setdefault((run.workload, json.dumps(stated, sort_keys=True)), [])
        near = [first for first, others in known if all(map(_is_near, lengths, others))]
        if not near:
            known.append((run, lengths))
        found[run.run_id] = replace(run, parameters=near[0].parameters) if near else run
    return found


def _is_near(one: Any, other: Any) -> bool:
    """Return whether two lengths are equal, or differ by little where one is a measured mean."""
    texts = [str(one), str(other)]
    if one == other or not any(text.startswith(MEASURED_MARK) for text in texts):
        return bool(one == other)
    try:
        less, more = sorted(float(text.removeprefix(MEASURED_MARK)) for text in texts)
    except ValueError:
        return False
    return more - less <= _ALIKE_LENGTHS * more


def _join(run: Run, candidates: Mapping[str, Mapping[str, Any]]) -> Run:
    stated = json.loads(run.parameters)
    agreeing = [text for text, parameters in candidates.items() if _agree(stated, parameters)]
    return replace(run, parameters=agreeing[0]) if len(agreeing) == 1 else run


def _agree(stated: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
    return all(
        parameters.get(name) == value
        or (name in _OPEN and None in (value, parameters.get(name)))
        or (name in _LENGTHS and _is_near(parameters.get(name), value))
        for name, value in stated.items()
    )


# The workload that measures the roofs of a device: no work that is compared, unless it is asked for.
ROOFS = "ceilings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The runs that a question is about: those of a workload and an experiment that satisfy a condition; None: all.

    Attributes:
        where: an SQL condition on the view `runs`, or on the columns of a job.
        jobs: whether jobs are meant instead of runs; `workload` is their name then, or one of them.
    """

    workload: str | None = None
    experiment: str | None = None
    where: str | None = None
    jobs: bool = False

    @property
    def conditions(self) -> dict[str, Any]:
        """The arguments of `find_runs`."""
        chosen = {"workload": self.workload, "experiment": self.experiment, "where": self.where}
        return {**chosen, "jobs": True} if self.jobs else chosen

    @property
    def words(self) -> dict[str, str | None]:
        """The options of a command that chooses the same runs, with their values."""
        return {f"--{name}": "" if value is True else value for name, value in self.conditions.items()}


# How a condition of --param begins, with its name.
_PARAMETER = re.compile(r"""\(json_extract_string\(parameters, '\$\."([^"]+)"'\)""")


def _why_no_run(where: str) -> str:
    """Return the condition that no run satisfies, as it was given."""
    named = _PARAMETER.match(where)
    if named is None:
        return f"no run satisfies --where {where}"
    own = f"options of your own programs: `collector compare --by argument:{named[1]}`"
    return f"no run of a built-in workload has this --param {named[1]}; {own}"


def find_runs(
    ask: Ask,
    facet: Facet,
    *,
    workload: str | None,
    experiment: str | None,
    where: str | None = None,
    jobs: bool = False,
) -> list[Run]:
    """Return the runs of a workload and an experiment that satisfy an SQL condition, oldest first; None: all.

    Runs that warm up count only if they are asked for: by their experiment, or one by one. With `jobs`, ended jobs.

    Raises:
        MisuseError: no run is one of them, or the condition is invalid.
        GpuAgentError: the store has no runs, or only warm-ups.
    """
    if jobs:
        return _find_jobs(ask, facet, workload, experiment, where)
    runs = load_runs(ask, facet, workload=workload, experiment=experiment)
    chosen = runs if where is None else _filter_by_sql(ask, runs, where)
    if chosen and (experiment or "run" in facet.names):
        return join_imported(chosen)
    counted = [run for run in chosen if not (run.experiment or "").endswith(WARM_UP)]
    if counted:
        return join_imported(counted)
    if chosen:
        raise GpuAgentError(f"these runs only warm up; to see them, give --experiment {chosen[-1].experiment}")
    if runs:
        raise MisuseError(_why_no_run(where or ""))
    for column, value in (("workload", workload), ("experiment", experiment)):
        if value is not None:
            present = [row["value"] for row in ask(_PRESENT.format(column=column))]
            if value not in present:
                close = get_close_matches(value, present, n=1)
                known = f"did you mean {close[0]}?" if close else say_present(present)
                raise MisuseError(f"no run has the {column} {value}; {known}")
    if workload and experiment:
        raise MisuseError(f"the experiment {experiment} has no run of the workload {workload}")
    raise GpuAgentError("the store has no runs yet; make some with `gpuagent run mnist --repeat 5`")


# The name that an agent gives to the experiment of runs that were given none.
_UNNAMED = re.compile(r".*-\d{8}T\d{6}")

# More are not listed in a message.
_MOST_NAMES = 20


def say_present(names: Sequence[str]) -> str:
    """Return the names in words, without warm-ups and those that an agent gave, unless there are no others."""
    given = [name for name in names if not name.endswith(WARM_UP)] or names
    given = [name for name in given if not _UNNAMED.fullmatch(name)] or given
    if not given:
        return "the store has no runs yet"
    return f"there are: {', '.join([*given[:_MOST_NAMES], *(['…'] if len(given) > _MOST_NAMES else [])])}"


def _find_jobs(ask: Ask, facet: Facet, name: str | None, experiment: str | None, where: str | None) -> list[Run]:
    if experiment:
        raise MisuseError("jobs belong to no experiment; leave out --experiment")
    try:
        found = [Run(**fields) for fields in read_job_runs(ask, facet, name=name, where=where)]
    except MisuseError as error:
        raise MisuseError(f"--where: {error}") from error
    if not found:
        which = f" named {name_of_job(name)[:80]}" if name else ""
        condition = f" that meets --where {where}" if where else ""
        ended = f"no job{which}{condition} has ended"
        if "name" in facet.names:
            instead = "`--by command` compares the commands of runs"
            raise MisuseError(f"--by name compares jobs by their name, and {ended}; {instead}")
        raise MisuseError(f"{ended}; `collector jobs` lists them")
    return found


def find_work(
    ask: Ask,
    facet: Facet,
    *,
    workload: str | None,
    experiment: str | None,
    where: str | None = None,
    jobs: bool = False,
) -> list[Run]:
    """Return the found runs without those that measured a device's roofs, unless there are no others.

    Raises:
        MisuseError, GpuAgentError: as find_runs.
    """
    runs = find_runs(ask, facet, workload=workload, experiment=experiment, where=where, jobs=jobs)
    return [run for run in runs if run.workload != ROOFS] or runs


def find_workload(ask: Ask, facet: Facet, *, experiment: str | None, where: str | None) -> str:
    """Return the only workload of these runs.

    Raises:
        MisuseError: they have several.
    """
    rows: list[dict[str, Any]] = []
    with suppress(MisuseError):  # find_work says what is wrong
        of_experiment = f"experiment = {literal(experiment)}" if experiment else "true"
        rows = ask(_WORKLOADS.format(of_experiment=of_experiment, where=parenthesised(where or "true")))
    if not experiment and "run" not in facet.names:
        rows = [row for row in rows if not (row["experiment"] or "").endswith(WARM_UP)]
    names = sorted({row["workload"] or "unknown workload" for row in rows} - {ROOFS})
    if not names:
        found = find_work(ask, facet, workload=None, experiment=experiment, where=where)
        names = sorted({run.workload for run in found})
    if len(names) > 1:
        raise MisuseError(f"name one WORKLOAD; there are: {', '.join(names)}")
    return names[0]


def _filter_by_sql(ask: Ask, runs: Iterable[Run], where: str) -> list[Run]:
    try:
        rows = ask(f"SELECT run_id FROM runs WHERE {parenthesised(where)}")  # noqa: S608 - a reader's own statement
    except MisuseError as error:
        raise MisuseError(f"--where: {error}") from error
    ids = {row["run_id"] for row in rows}
    return [run for run in runs if run.run_id in ids]


_WORKLOADS = "SELECT DISTINCT workload, experiment FROM runs WHERE {of_experiment} AND {where}"
_PRESENT = "SELECT DISTINCT {column} AS value FROM runs WHERE {column} IS NOT NULL ORDER BY value"


def only_with(runs: Iterable[Run], field: str, values: Sequence[Any]) -> list[Run]:
    """Return the runs whose `field` is one of the values; all for no values.

    Raises:
        MisuseError: no run has one of the values.
    """
    runs = list(runs)
    present = sorted({value for run in runs if (value := getattr(run, field))})
    for value in values:
        if value not in present:
            raise MisuseError(f"none of these runs has the {field} {value}; there are: {', '.join(present)}")
    return [run for run in runs if not values or getattr(run, field) in values]


def median_run(runs: Sequence[Run], facts: Facts, metric: str) -> Run:
    """Return the run whose metric is the median, the lower one of two; the first where none has it."""
    figures = facts.column(runs, metric)
    known = np.count_nonzero(~np.isnan(figures))
    # Absent ones are the last.
    return runs[np.argsort(figures, kind="stable")[(known - 1) // 2]] if known else runs[0]
