"""Shows on stderr how launched runs come along: a table in a terminal, lines anywhere else."""

from collections.abc import Sequence

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from gpuagent_collector.launching.agents import Agent
from gpuagent_collector.launching.progress import Progress
from gpuagent_collector.output.human import duration
from gpuagent_collector.output.listing import ListColumn, list_table
from gpuagent_collector.output.statuses import STATUSES
from gpuagent_collector.output.text import harmless

# What is shown first where the terminal has no room for all.
_ORDER = ("running", "lost", "failed", "timed_out", "cancelled", "queued", "succeeded")

# Lines of a terminal that are not runs: the table's header, what is left out, and the prompt.
_AROUND_LINES = 4


def ended_columns() -> list[ListColumn]:
    """Return the columns of a list of launched runs that are not followed, or not any more."""
    return [
        *_RUN,
        ListColumn(title="why", show=lambda row: row["run"].reason, rank=3, max_width=40),
        ListColumn(title="took", show=lambda row: _elapsed(row["run"]), rank=4, right=True),
    ]


def _live_columns() -> list[ListColumn]:
    return [
        *_RUN,
        ListColumn(title="phase", show=lambda row: _phase(row["run"]), rank=4),
        ListColumn(title="steps", show=lambda row: _steps(row["run"]), rank=5, right=True),
        ListColumn(title="elapsed", show=lambda row: _elapsed(row["run"]), rank=3, right=True),
    ]


# Columns of every list of launched runs, whose rows are {"run": Progress}.
_RUN = (
    ListColumn(title="run", show=lambda row: row["run"].run.run_id, rank=0),
    ListColumn(title="node", show=lambda row: row["run"].run.node, rank=2, max_width=24),
    ListColumn(title="platform", show=lambda row: row["run"].run.platform, rank=6),
    ListColumn(title="status", show=lambda row: row["run"].status, rank=1, style=lambda name: STATUSES.get(name, "")),
)


def agent_columns() -> list[ListColumn]:
    """Return the columns of a list of connected agents, whose rows are {"agent": Agent}."""
    return [
        ListColumn(title="node", show=lambda row: row["agent"].node, rank=0, max_width=36),
        ListColumn(title="platform", show=lambda row: row["agent"].platform, rank=1),
        ListColumn(title="labels", show=lambda row: _labels(row["agent"]), rank=2, max_width=36),
        ListColumn(title="GPUs", show=lambda row: ", ".join(row["agent"].gpus) or None, rank=4, max_width=24),
        ListColumn(title="runs", show=lambda row: str(row["agent"].open_runs), rank=3, right=True),
        ListColumn(title="takes", show=lambda row: _takes(row["agent"]), rank=5),
        ListColumn(title="agent", show=lambda row: row["agent"].version, rank=6),
    ]


def experiment_columns() -> list[ListColumn]:
    """Return the columns of a list of agents that an experiment was launched on, whose rows are {"on": OnAgent}."""
    return [
        ListColumn(title="node", show=lambda row: row["on"].agent.node, rank=0, max_width=36),
        ListColumn(title="platform", show=lambda row: row["on"].agent.platform, rank=5),
        ListColumn(title="status", show=lambda row: row["on"].state.status, rank=1),
        ListColumn(title="runs", show=lambda row: row["on"].made, rank=2, right=True),
        ListColumn(title="failed", show=lambda row: str(row["on"].state.failed_runs), rank=4, right=True),
        ListColumn(title="why", show=lambda row: row["on"].state.reason or None, rank=3, max_width=40),
    ]


class Lines:
    """A line whenever a run's status or phase changes."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[str, str | None]] = {}

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, runs: Sequence[Progress]) -> None:
        """Say what has changed."""
        for run in runs:
            state = (run.status, _phase(run))
            if run.is_known and self._shown.get(run.run.run_id) != state:
                self._shown[run.run.run_id] = state
                self.say(_line(run))

    def say(self, words: str) -> None:
        """Print a line."""
        click.echo(f"collector: {harmless(words)}", err=True)


class LiveTable:
    """A table that is renewed in its place, and gone afterwards."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, transient=True, auto_refresh=False)

    def __enter__(self) -> "LiveTable":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def update(self, runs: Sequence[Progress]) -> None:
        """Show how the runs stand, as many as fit."""
        room = max(1, self._console.height - _AROUND_LINES)
        ordered = sorted(runs, key=lambda run: _ORDER.index(run.status))
        table = list_table(_live_columns(), [{"run": run} for run in ordered[:room]], self._console.width)
        left_out = len(runs) - room
        ended = sum(run.has_ended for run in runs)
        more = f"; {left_out} not shown" if left_out > 0 else ""
        self._live.update(Group(table, Text(f"{ended} of {len(runs)} ended{more}", style="dim")), refresh=True)

    def say(self, words: str) -> None:
        """Print a line above the table."""
        self._live.console.print(Text(f"collector: {harmless(words)}"))


def _labels(agent: Agent) -> str | None:
    return ",".join(f"{name}={value}" for name, value in sorted(agent.labels.items())) or None


def _takes(agent: Agent) -> str:
    return "any command" if agent.allows_commands else "workloads"


def _line(run: Progress) -> str:
    line = f"{run.run.run_id} on {run.run.node}: {run.status.replace('_', ' ')}"
    if not run.has_ended:
        return f"{line}, {run.phase}" if _phase(run) else line
    after = f" after {duration(run.elapsed_seconds)}" if run.elapsed_seconds is not None else ""
    return f"{line}{after}{f': {run.reason}' if run.reason else ''}"


def _phase(run: Progress) -> str | None:
    return run.phase if run.status == "running" else None


def _steps(run: Progress) -> str | None:
    return f"{run.steps:,}" if run.status == "running" and run.steps is not None else None


def _elapsed(run: Progress) -> str | None:
    return None if run.elapsed_seconds is None else duration(run.elapsed_seconds)
