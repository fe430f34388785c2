"""Displays of launched work on stderr (a table in a terminal, lines anywhere else), and columns of lists."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from gpuagent_collector.launching.agents import Agent
from gpuagent_collector.launching.progress import ExperimentProgress, RunProgress
from gpuagent_collector.present.human import age, duration
from gpuagent_collector.present.statuses import STATUSES
from gpuagent_collector.present.terminal import ListColumn, list_table, plain_console
from gpuagent_common.text import harmless

# The order of runs and experiments where the terminal has no room for all.
_ORDER = ("running", "lost", "failed", "timed_out", "cancelled", "incomplete", "queued", "succeeded", "complete")

# Lines of a terminal that are not work: the table's header, the count, and the prompt.
_AROUND_LINES = 4


def _left(each: ExperimentProgress) -> str | None:
    return age(timedelta(seconds=each.state.left_seconds)) if each.state.HasField("left_seconds") else None


def _elapsed(run: RunProgress) -> str | None:
    return None if run.elapsed_seconds is None else duration(run.elapsed_seconds)


# Columns of every list of launched runs, whose rows are {"work": RunProgress}.
_RUN = (
    ListColumn(title="run", show=lambda row: row["work"].run_id, rank=0),
    ListColumn(title="node", show=lambda row: row["work"].agent.node, rank=2, max_width=36),
    ListColumn(title="platform", show=lambda row: row["work"].agent.platform, rank=6),
    ListColumn(title="status", show=lambda row: row["work"].status, rank=1, style=lambda name: STATUSES.get(name, "")),
)

ENDED_RUN_COLUMNS = (
    *_RUN,
    ListColumn(title="why", show=lambda row: row["work"].reason, rank=3, max_width=40, below=True),
    ListColumn(title="took", show=lambda row: _elapsed(row["work"]), rank=4, right=True),
)

_LIVE_RUN_COLUMNS = (
    *_RUN,
    ListColumn(title="phase", show=lambda row: row["work"].running_phase, rank=4, is_optional=True),
    ListColumn(
        title="steps",
        show=lambda row: None if row["work"].steps is None else f"{row['work'].steps:,}",
        rank=5,
        right=True,
        is_optional=True,
    ),
    ListColumn(title="elapsed", show=lambda row: _elapsed(row["work"]), rank=3, right=True),
)

# Columns of every list of launched experiments, whose rows are {"work": ExperimentProgress}.
_EXPERIMENT = (
    ListColumn(title="node", show=lambda row: row["work"].agent.node, rank=0, max_width=36),
    ListColumn(title="platform", show=lambda row: row["work"].agent.platform, rank=5),
    ListColumn(title="status", show=lambda row: row["work"].status, rank=1, style=lambda name: STATUSES.get(name, "")),
    ListColumn(title="runs", show=lambda row: row["work"].made, rank=2, right=True),
    ListColumn(title="failed", show=lambda row: str(row["work"].state.failed_runs), rank=4, right=True),
)

EXPERIMENT_COLUMNS = (
    *_EXPERIMENT,
    ListColumn(title="why", show=lambda row: row["work"].state.reason or None, rank=3, max_width=40, below=True),
)

_LIVE_EXPERIMENT_COLUMNS = (
    *_EXPERIMENT,
    ListColumn(title="left", show=lambda row: _left(row["work"]), rank=3, right=True),
    ListColumn(title="now", show=lambda row: row["work"].state.doing or None, rank=6, max_width=40, below=True),
)

# Columns of the list of agents, whose rows are {"agent": Agent}.
_AGENT = (
    ListColumn(title="node", show=lambda row: row["agent"].node, rank=0, max_width=36),
    ListColumn(title="platform", show=lambda row: row["agent"].platform, rank=1),
    ListColumn(
        title="labels",
        show=lambda row: ",".join(f"{name}={value}" for name, value in sorted(row["agent"].labels.items())) or None,
        rank=2,
        max_width=36,
    ),
    ListColumn(title="GPUs", show=lambda row: ", ".join(row["agent"].gpus) or None, rank=4, max_width=24),
    ListColumn(title="runs", show=lambda row: str(row["agent"].open_runs), rank=3, right=True),
    ListColumn(title="takes", show=lambda row: "any command" if row["agent"].allows_commands else "workloads", rank=5),
    ListColumn(title="agent", show=lambda row: row["agent"].version, rank=6),
)


def agent_columns(agents: Sequence[Agent]) -> Sequence[ListColumn]:
    """Return the columns of the list of agents; nodes that share a name have their UUIDs, which --on takes too."""
    names = Counter(name for name, _ in {(agent.node, agent.node_uuid) for agent in agents})
    shared = {name for name, nodes in names.items() if nodes > 1}

    def show(row: Mapping[str, Agent]) -> str | None:
        return row["agent"].node_uuid if row["agent"].node in shared else None

    identity = [ListColumn(title="identity", show=show, rank=1)] if shared else []
    return [_AGENT[0], *identity, *_AGENT[1:]]


def open_display() -> "AbstractContextManager[Lines | LiveTable]":
    """Return a display: a table in a terminal, and lines anywhere else."""
    console = plain_console(sys.stderr)
    return LiveTable(console) if console.is_terminal and not console.is_dumb_terminal else nullcontext(Lines())


class Lines:
    """A display that prints a line whenever work reaches another stage."""

    def __init__(self) -> None:
        self._stages: dict[str, tuple[object, ...]] = {}

    def update(self, work: Sequence[RunProgress] | Sequence[ExperimentProgress]) -> None:
        """Print the work that has reached another stage."""
        for each in work:
            stage = each.stage
            if stage is not None and self._stages.get(each.key) != stage:
                self._stages[each.key] = stage
                self.print(each.line)

    def print(self, words: str) -> None:
        """Print a line."""
        click.echo(f"collector: {harmless(words)}", err=True)


class LiveTable:
    """A table of launched work that is redrawn in place, and removed on exit."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, transient=True, auto_refresh=False)

    def __enter__(self) -> "LiveTable":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def update(self, work: Sequence[RunProgress] | Sequence[ExperimentProgress]) -> None:
        """Show as much of the work as fits."""
        room = max(1, self._console.height - _AROUND_LINES)
        ordered = sorted(work, key=lambda each: _ORDER.index(each.status))
        columns = _LIVE_RUN_COLUMNS if isinstance(ordered[0], RunProgress) else _LIVE_EXPERIMENT_COLUMNS
        table = list_table(columns, [{"work": each} for each in ordered[:room]], self._console.width)
        left_out = len(work) - room
        ended = sum(each.has_ended for each in work)
        more = f"; {left_out} not shown" if left_out > 0 else ""
        self._live.update(Group(table, Text(f"{ended} of {len(work)} ended{more}", style="dim")), refresh=True)

    def print(self, words: str) -> None:
        """Print a line above the table."""
        self._live.console.print(Text(f"collector: {harmless(words)}"))
