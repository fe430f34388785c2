"""Options that make new runs like stored ones, and those that the store does not have."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuagent_collector.json_cells import read_object, read_words
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.arguments import Command
from gpuagent_collector.runs.arguments import repeat_command as command_with
from gpuagent_common.naming import RESERVED_LABELS
from gpuagent_common.program_name import name_programs

_ASKED = """
SELECT DISTINCT session.platform, nullif(session.platform, session.hostname) AS named, run.environment, run.image,
       run.workload, CAST(run.command AS VARCHAR) AS command,
       CAST(session.labels AS VARCHAR) AS of_session, CAST(run.labels AS VARCHAR) AS of_run
FROM runs AS run LEFT JOIN sessions AS session USING (session_id)
WHERE run.run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
ORDER BY ALL"""

# The sources of steps that a program did not report by itself, and whether its throughput is in items.
_STEPS = """
SELECT list(DISTINCT name) AS sources,
       (SELECT count(*) > 0 FROM results WHERE name = 'throughput' AND unit = 'items/s'
            AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))) AS has_items
FROM run_events WHERE event = 'found' AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))"""

# Labels that a batch job gives its agent, or an experiment its runs.
_MADE = re.compile(rf"slurm_.*|ls[bf].*|rung|command|{'|'.join(RESERVED_LABELS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The options of stored runs, as far as they are recorded.

    Attributes:
        of_agent: --platform and --label with the values that all runs share.
        parameters: --param with the values that the first run of a built-in workload was given; others have none.
        environments: with their images, as `--environment` takes them.
        observed: whether steps were found by --observe.
        has_pattern: whether steps were found by a pattern of the user's own, which is not recorded.
        has_items: whether the throughput of steps that were found is in items, perhaps by --items-per-step.
    """

    of_agent: tuple[str, ...]
    parameters: tuple[str, ...]
    environments: tuple[str, ...]
    observed: bool
    has_pattern: bool
    has_items: bool

    @property
    def lacking(self) -> str:
        """The sentence that names the options that are to be added; '' for none."""
        if self.has_pattern:
            items = " and, if they had it, --items-per-step" if self.has_items else ""
            return f"Add the --pattern of these runs{items} to the next command: without it there is no throughput."
        return "Add --items-per-step to the next command if these runs had it." if self.has_items else ""

    def repeat_command(self, commands: Sequence[Command], workload: str, repeats: int | None = None) -> str | None:
        """Return the command that makes new runs of commands in turns; None: it would be too long."""
        options = [*self.of_agent]
        if self.environments != ("bare",):
            options += [word for each in self.environments for word in ("--environment", each)]
        if not all(commands):
            options = [*self.parameters, *options]
        else:
            if workload != name_programs(dict.fromkeys(commands)):
                options += ["--name", workload]
            options += ["--observe"] if self.observed else []
        return command_with(commands, workload, repeats, options)


def find_recorded(ask: Ask, run_ids: Iterable[str]) -> Recorded:
    """Return the options of runs."""
    ids = sorted(run_ids)
    asked = ask(_ASKED, [ids])
    (steps,) = ask(_STEPS, [ids, ids])
    words: list[str] = []
    # Several platforms are several machines, each with its own name.
    if len({row["platform"] for row in asked}) == 1 and (platform := asked[0]["named"]):
        words += ["--platform", platform]
    labels = [
        {**read_object(row["of_session"], "labels"), **read_object(row["of_run"], "labels")}.items() for row in asked
    ]
    for name, value in labels[0] if labels else ():
        if not _MADE.fullmatch(name) and all((name, value) in each for each in labels):
            words += ["--label", f"{name}={value}"]
    places = {(row["environment"], row["image"]) for row in asked if row["environment"]}
    sources = [name for name in steps["sources"] or () if name]
    return Recorded(
        of_agent=tuple(words),
        parameters=tuple(_given(read_words(asked[0]["command"]), asked[0]["workload"])) if asked else (),
        environments=tuple(sorted(f"{name}:{image}" if image else name for name, image in places)) or ("bare",),
        observed=any(not name.startswith("pattern ") for name in sources),
        has_pattern="pattern given" in sources,
        has_items=bool(sources) and steps["has_items"],
    )


def _given(command: Sequence[str], workload: str) -> Sequence[str]:
    """Return the words that follow the name of a built-in workload in the command of a run; none in other commands."""
    before = ["gpuagent_workloads", "run", workload]
    for start in range(len(command)):
        if list(command[start : start + len(before)]) == before:
            return command[start + len(before) :]
    return ()
