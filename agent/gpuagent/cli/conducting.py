"""The runs of an experiment, made by the node's agent or one of our own, and continued where they were interrupted."""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

from gpuagent.agent_config import AgentConfig
from gpuagent.cli.experiment_answer import await_delivery, is_narrow
from gpuagent.cli.follow import OutputCopy, words_without_steps
from gpuagent.cli.node_agent import PLANNING, node_agent
from gpuagent.cli.progress import ProgressLine, ReadGpus, has_terminal
from gpuagent.errors import AgentEndedError
from gpuagent.experiment import plan
from gpuagent.experiment.conduct import Conductor, Journal
from gpuagent.experiment.gpus import NodeGpus
from gpuagent.experiment.plan import Trial, describe_apart
from gpuagent.runs.events import EventTailer
from gpuagent_common.program_name import find_step_size
from gpuagent_common.text import harmless, shorten_options, write_duration
from gpuagent_common.waiting import waiting_for
from gpuagent_proto.v1.run_pb2 import RunSpec, RunUpdate

# For the place and the figures of a run, beside its label.
_FIGURES_CHARACTERS = 36

# Reading the temperatures takes less than a second.
_COOL_DOWN_SECONDS = 1.0


class RunLines:
    """A display of an experiment's progress, with a line for each run."""

    def __init__(self, journal: Journal) -> None:
        self._journal, every = journal, journal.every
        self.read_gpus: ReadGpus = lambda _run_id: []
        cells = list({trial.cell.key: trial.cell for trial in every}.values())
        most = max(12, shutil.get_terminal_size().columns - _FIGURES_CHARACTERS)
        size = find_step_size(cell.asked.command for cell in cells)
        words = f"a step of another --{size} is other work; with --items-per-step {size}, items/s are compared"
        self._no_items = size and words
        self._labels = {key: harmless(words) for key, words in describe_apart(cells, most).items()} if cells else {}
        short = _fit(list(self._labels.values()), most)
        self._labels = dict(zip(self._labels, short, strict=True))
        self._width = min(max(map(len, short), default=0), most)
        self.first_repeat = every[0].repeat if every else 1
        self._counted = [trial for trial in every if trial.repeat > 0]
        self._places = {(trial.cell.key, trial.repeat): at for at, trial in enumerate(self._counted, start=1)}
        self._notices: set[str] = set()
        self._current: Trial | None = None
        # The update with which the current run started, once it has.
        self._running: RunUpdate | None = None
        self._live: OutputCopy | None = None

    @property
    def made(self) -> int:
        """The number of runs that are compared and have ended."""
        return sum(done.repeat > 0 for done in self._journal.ended())

    @property
    def planned(self) -> int:
        """The number of runs that are compared."""
        return len(self._counted)

    def wait(self, trial: Trial, reason: str) -> None:
        """Print why the next run waits."""
        self.close()
        self._print(trial, reason)

    def begin(self, trial: Trial) -> None:
        """Take note that a run begins, or runs after a wait; its line is drawn once it has a directory."""
        self._current = trial
        if self._running:
            self.follow(self._running)

    def follow(self, update: RunUpdate) -> None:
        """Draw the line of a run that has started, on a terminal, until it has ended."""
        if update.status != "running" or self._live or self._current is None or not has_terminal():
            return
        left = self._journal.expected_seconds(self._journal.left()) or None
        self._running = update
        folder, title = Path(update.run_directory), self._title(self._current).rstrip()
        progress = ProgressLine(update.run_id, folder, self.read_gpus, left, title=title)
        self._live = OutputCopy(folder, progress, quiet_stdout=True, is_silent=True)

    def end(self, trial: Trial, update: RunUpdate, seconds: float, cool_down_seconds: float) -> None:
        """Print how a run ended, and where no line is redrawn also the expected time of the rest."""
        self.close()
        self._running = None
        digest = EventTailer(update.run_id, Path(update.run_directory)).read_all()
        took = write_duration(update.seconds if update.HasField("seconds") else seconds)
        parts = [took] if update.status == "succeeded" else [f"{update.status.replace('_', ' ')} after {took}"]
        if throughput := digest.write_result("throughput"):
            parts.append(throughput)
        if cool_down_seconds >= _COOL_DOWN_SECONDS:
            parts.append(f"after {cool_down_seconds:.1f} s of cool-down")
        if update.reason:
            parts.append(harmless(update.reason))
            # A program that did not start has no exit code and no output.
            parts += [f"output: {update.run_directory}"] if update.HasField("exit_code") else []
        left = self._journal.left()
        if left and update.status == "succeeded" and not has_terminal():
            parts.append(f"about {write_duration(self._journal.expected_seconds(left))} left")
        self._print(trial, " · ".join(parts))
        is_lacking = update.status == "succeeded" and not str(digest.steps)
        no_steps = words_without_steps(trial.cell.asked, Path(update.run_directory)) if is_lacking else ""
        no_items = self._no_items if (throughput or "").endswith(" steps/s") else ""
        for notice in filter(None, (update.notice, digest.complaint, no_steps, no_items)):
            if notice not in self._notices:
                self._notices.add(notice)
                self.note(harmless(notice))

    def note(self, words: str) -> None:
        """Print something else."""
        click.echo(f"gpuagent: {words}", err=True)

    def close(self) -> None:
        """Remove the line of a run that has ended, or was cancelled."""
        if self._live:
            self._live.finish()
            self._live = None

    def _title(self, trial: Trial) -> str:
        label = self._labels[trial.cell.key]
        number = len(str(self.planned))
        place = self._places.get((trial.cell.key, trial.repeat))
        where = f"[{place:>{number}}/{self.planned}]" if place else f"[{'warm-up':^{2 * number + 1}}]"
        return f"{where} {label:<{self._width}}"

    def _print(self, trial: Trial, words: str) -> None:
        click.echo(f"{self._title(trial)}  {words}", err=True)


def _fit(labels: Sequence[str], most: int) -> list[str]:
    """Return labels of at most `most` characters: with short names of options, or without their ends or middles."""
    short = shorten_options(labels, most)
    if max(map(len, short), default=0) <= most:
        return short
    begins = [label if len(label) <= most else f"{label[: most - 1]}…" for label in labels]
    if len(set(begins)) == len(set(labels)):
        return begins
    tail = (most - 1) // 2
    return [label if len(label) <= most else f"{label[: most - tail - 1]}…{label[-tail:]}" for label in labels]


def make_runs(
    journal: Journal,
    config: AgentConfig,
    given: Sequence[str],
    gpus: NodeGpus,
    lines: RunLines,
    *,
    place: str = "",
    prepare: Callable[[Trial], None] = lambda _trial: None,
) -> tuple[bool, bool]:
    """Make the runs that are left; begin again if another's agent ends first, unless no run was made since then.

    Args:
        given: names of its options that were given.
        place: where the runs are stored, in words; empty: the collector's address says it.

    Returns:
        Whether the collector has the samples of an agent of our own, and whether a planned look ended it.

    An agent that lasts as long as another command ends between two runs, when that command has no run left.
    """

    def submit(spec: RunSpec) -> Iterator[RunUpdate]:
        with contextlib.ExitStack() as notice:
            notice.enter_context(waiting_for("gpuagent", f"{PLANNING}, or for another run that this node makes first"))
            for update in agent.submit(spec):
                if update.status != "queued" or update.reason:
                    notice.close()
                lines.follow(update)
                yield update

    def has_narrow_intervals() -> bool:
        made = sum(done.repeat > 0 for done in journal.done)
        return is_narrow(journal.experiment, config, agent.waiting, made=made)

    working_directory = str(Path.cwd())
    conductor = Conductor(
        journal=journal,
        gpus=gpus,
        submit=submit,
        observer=lines,
        working_directory=working_directory,
        prepare=prepare,
        is_narrow=has_narrow_intervals,
    )
    made_before = -1
    while left := journal.left():
        first = plan.spec(left[0], journal.experiment, working_directory)
        try:
            with node_agent(config, given, first, place=place) as agent, contextlib.closing(lines):
                lines.read_gpus = agent.read_gpus
                began = time.monotonic()
                try:
                    conductor.run()
                except KeyboardInterrupt:
                    lines.close()
                    made = f"{lines.made} of {lines.planned} runs are stored"
                    after = write_duration(time.monotonic() - began)
                    lines.note(f"cancelled after {after}; {made}; run it again to resume")
                    raise click.exceptions.Exit(130) from None
                await_delivery(agent.waiting)
            if changed := journal.changed_programs():
                lines.note(f"{changed} changed during these runs, so they mix both versions; make them again")
            return not agent.left_behind(), conductor.has_stopped
        except AgentEndedError:
            if len(journal.done) == made_before:
                raise
            made_before = len(journal.done)
            lines.note("the agent on this node has ended; another one makes the remaining runs")
    return True, False
