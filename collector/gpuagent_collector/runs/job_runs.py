"""Jobs as runs: what `compare`, `peers` and `history` take for runs where they are asked about jobs.

A job is a run of its name on the nodes where it was. It has no steps, phases and results, and nothing says how its
program ended: every job that ended counts, and what agents do not count of jobs is absent.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuagent_collector.query.ask import Ask, literal
from gpuagent_collector.runs.facets import JOINT, Facet
from gpuagent_collector.runs.jobs import A_MONTH, Chosen, is_known, read_jobs
from gpuagent_collector.runs.words import write_command
from gpuagent_common.errors import MisuseError

# Jobs have their number for an identity, which as that of a run follows this word: no agent names a run so.
_WORD = "job "
# What Slurm and Kubernetes name is unique; a unit or user is one on each node.
_OF_CLUSTER = ("slurm", "pod", "docker", "podman", "container")
# The newest ones are compared: of more, lists of Python would take long.
MOST_JOBS = 10_000

# A figure of runs that says the same of jobs → what it is in the row of a job.
_FIGURES = {
    "run_seconds": "seconds",
    "gpu_memory_used_bytes": "gpu_memory_max_bytes",
    "gpu_energy_run_joules": "energy_joules",
    "process_anonymous_peak_bytes": "memory_max_bytes",
}


def is_job(run_id: str) -> bool:
    """Return whether this is the identity of a job."""
    return run_id.startswith(_WORD)


def are_jobs(run_ids: Sequence[str]) -> bool:
    """Return whether these are jobs: nothing compares them with runs."""
    return bool(run_ids) and is_job(run_ids[0])


def name_of_job(run_id: str) -> str:
    """Return what `collector job` takes for this job."""
    return run_id.removeprefix(_WORD)


def take_jobs(ask: Ask, asked: Mapping[str, Any], name: str | None = None) -> dict[str, Any]:
    """Return the fields of a request, with `jobs` where a name in it is that of a job and of no run.

    Args:
        ask: runs a query on the store.
        asked: the fields; of its workload, and the sides of a comparison, some may be jobs.
        name: another field that may name a job.

    Raises:
        MisuseError: a job has not ended, or something is asked of jobs that they do not have.
    """
    found = dict(asked)
    sides, facets = found.get("values", ()), found.get("by", "").split(",")
    named = [*sides, *(found[key] for key in ("workload", name) if key and found.get(key))]
    found["jobs"] = bool(found.get("jobs")) or bool({"user", "name"}.intersection(facets))
    if named and not found["jobs"]:
        found["jobs"] = not ask(_OF_RUNS, [named[0]] * 5) and is_known(ask, name_of_job(named[0]))
    if not found["jobs"]:
        return found
    for option, is_given in (("--each", found.get("each")), ("--reference", found.get("reference"))):
        if is_given:
            raise MisuseError(f"jobs have no steps, parts or published runs; leave out {option}")
    if name and found[name]:
        found[name] = _find_job(ask, found[name])
    if sides and found["by"] == "platform" and read_jobs(ask, Chosen(name=sides[0], limit=1)):
        found["by"] = "name"
    elif sides and found["by"] in ("platform", "run"):
        found["by"], found["values"] = "run", tuple(_find_job(ask, side) for side in sides)
        jobs = {part for run_id in found["values"] for part in (name_of_job(run_id), run_id.rpartition("/")[2])}
        found["also"] = f"job IN ({', '.join(map(literal, sorted(jobs)))})"
    return found


_OF_RUNS = """
SELECT 1 FROM runs LEFT JOIN sessions USING (session_id)
WHERE starts_with(run_id, ?) OR workload = ? OR runs.platform = ? OR hostname = ? OR environment = ? LIMIT 1"""


def _find_job(ask: Ask, name: str) -> str:
    """Return the identity of the job that is called so, or of the newest one with this name that has ended.

    Raises MisuseError: there is none, or it has not ended.
    """
    found = read_jobs(ask, Chosen(job=name_of_job(name), limit=1)) or _read(ask, name=name)
    if not found:
        raise MisuseError(f"no job is called {name[:80]}; `collector jobs` lists them")
    if not _has_ended(found[0]):
        shown = write_command("job", {}, sides=[name[:80]])
        raise MisuseError(f"the job {name[:80]} has not ended, so it cannot be compared; `{shown}` shows it")
    return _identity(found[0])


def read_job_runs(ask: Ask, facet: Facet, *, name: str | None = None, where: str | None = None) -> list[dict[str, Any]]:
    """Return the fields of a run for each ended job, oldest first.

    Args:
        ask: runs a query on the store.
        facet: its values are the sides.
        name: the jobs' name, or one of the jobs: then those of its user with its name; None: all.
        where: an SQL condition on the columns of a job. Without it and a name, the jobs are those of 30 days.

    Raises MisuseError: the condition is invalid.
    """
    found = [] if name and is_job(name) else _read(ask, name=name, where=where)
    if not found and name:
        one = [row for row in read_jobs(ask, Chosen(job=name_of_job(name), limit=1)) if _has_ended(row)]
        if one:
            found = _read(ask, name=_name(one[0]), user=one[0]["user_name"], where=where)
    kinds = _names_of_gpus(ask, found)
    names = {_name(row) for row in found}
    runs = []
    for row in reversed(found):
        gpus = _gpus(row)
        unknown = "unknown GPUs" if gpus is None and row["kind"] == "slurm" else None
        given: dict[str, Any] = {"user": row["user_name"], "gpus": gpus}
        given |= {"nodes": row["node_count"]} if row["node_count"] > 1 else {}
        run = {
            "run_id": _identity(row),
            "platform": row["platform"],
            "workload": _name(row),
            "environment": row["kind"],
            "image": None,
            "interference": None,
            "limits": f"{row['held_cores']:g} CPUs" if row["held_cores"] else None,
            "device": ", ".join(kinds[_identity(row)]) or unknown,
            "node_count": row["node_count"],
            "nodes": ", ".join(row["nodes"]) or None,
            "experiment": None,
            "repeat": None,
            "status": "succeeded",
            "reason": None,
            "started_at": row["started_at"],
            "ended_at": row["last_at"],
        }
        run["side"] = _side(facet, run, given)
        # Whoever names jobs, names or users wants these compared, though they differ in it.
        if len(names) > 1 and not facet.names.isdisjoint(("run", "name")):
            run["workload"] = "jobs"
        apart = {*facet.parameters, *(given if "run" in facet.names else ())}
        alike = {key: value for key, value in given.items() if key not in apart}
        runs.append({**run, "parameters": json.dumps(alike, sort_keys=True)})
    return runs


def read_chosen(ask: Ask, run_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return what the store has of these jobs, by their identities."""
    wanted = set(run_ids)
    rows = _read(ask, jobs=[name_of_job(run_id) for run_id in wanted])
    return {_identity(row): row for row in rows if _identity(row) in wanted}


def read_job_facts(ask: Ask, run_ids: Iterable[str]) -> dict[str, Any]:
    """Return the facts about jobs: their figures, and the nodes and GPUs that they had."""
    rows = read_chosen(ask, run_ids)
    sessions = _by_key(ask, "sessions", rows.values())
    devices = _by_key(ask, "session_devices", rows.values())
    metrics, of_sessions, of_devices = {}, {}, {}
    for run_id, row in rows.items():
        figures = {metric: row[column] for metric, column in _FIGURES.items()}
        figures["gpus"] = None if _gpus(row) is None else row["gpus_used"]
        if row["held_gpu_seconds"] and row["gpu_seconds"] is not None:
            figures["gpu_utilization_percent"] = 100 * row["gpu_seconds"] / row["held_gpu_seconds"]
        if row["node_seconds"] and row["cpu_seconds"] is not None:
            figures["process_cpu_cores"] = row["cpu_seconds"] / row["node_seconds"] * row["node_count"]
        metrics[run_id] = {metric: float(value) for metric, value in figures.items() if value is not None}
        of_sessions[run_id] = [record for key in row["session_ids"] for record in sessions[key]]
        held = set(row["device_ids"] or ())
        of_devices[run_id] = [
            record for key in row["session_ids"] for record in devices[key] if record["device_id"] in held
        ]
    return {"metrics": metrics, "sessions": of_sessions, "devices": of_devices}


def _read(
    ask: Ask,
    *,
    name: str | None = None,
    user: str | None = None,
    where: str | None = None,
    jobs: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """Return the newest ended jobs."""
    since = A_MONTH if name is None and where is None and jobs is None else None
    chosen = Chosen(name=name, user=user, where=where, jobs=jobs, since=since)
    return read_jobs(ask, replace(chosen, only_ended=True, with_agents=True, limit=MOST_JOBS))


def _has_ended(row: Mapping[str, Any]) -> bool:
    return not row["is_running"] and not row["is_lost"]


def _gpus(row: Mapping[str, Any]) -> int | None:
    """Return the GPUs that a job held, where this is unknown those it was seen on; None: nothing is known."""
    return row["gpus_held"] or row["gpus_seen"] or (0 if row["is_holder"] == 0 else None)


def _name(row: Mapping[str, Any]) -> str:
    return str(row["title"] or row["job"])


def _identity(row: Mapping[str, Any]) -> str:
    """Return the identity of a job among runs."""
    if row["kind"] in _OF_CLUSTER or not row["nodes"]:
        return f"{_WORD}{row['job']}"
    return f"{_WORD}{row['nodes'][0]}/{row['job']}"


def _by_key(ask: Ask, table: str, rows: Iterable[Mapping[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """Return the rows of a table about the agents that saw these jobs, by session."""
    keys = sorted({key for row in rows for key in row["session_ids"]})
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    sql = f"SELECT * FROM {table} WHERE session_id IN (SELECT unnest(CAST(? AS BIGINT[])))"  # noqa: S608
    for record in ask(sql, [keys]):
        found[record["session_id"]].append(record)
    return found


def _names_of_gpus(ask: Ask, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the GPU models of each job, with their number: 2 × NVIDIA H200."""
    devices = _by_key(ask, "session_devices", rows)
    found = {}
    for row in rows:
        held = set(row["device_ids"] or ())
        names = {
            record["device_id"]: record["name"] or "unknown GPU"
            for key in row["session_ids"]
            for record in devices[key]
            if record["device_id"] in held
        }
        counts = sorted(Counter(names.values()).items())
        found[_identity(row)] = [f"{number} × {name}" if number > 1 else name for name, number in counts]
    return found


def _side(facet: Facet, run: Mapping[str, Any], given: Mapping[str, Any]) -> str | None:
    """Return the name of a job's side; None: it has no value of a facet, as of those that only runs have."""
    nodes = run["node_count"]
    values = {
        **{f"parameter:{name}": value for name, value in given.items()},
        "platform": run["platform"],
        "environment": run["environment"],
        "limits": run["limits"] or "none",
        "device": run["device"] or "no GPU",
        "node": run["nodes"],
        "nodes": f"{nodes} node{'s' if nodes > 1 else ''}",
        "workload": run["workload"],
        "name": run["workload"],
        "user": given["user"],
        "run": run["run_id"],
        "all": "all runs",
    }
    sides = [values.get(part.name) for part in facet.parts]
    return None if None in sides else JOINT.join(map(str, sides))
