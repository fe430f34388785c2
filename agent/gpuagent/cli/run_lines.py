"""One line for each run of an experiment: redrawn on a terminal while it runs, and printed when it has ended."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import click

from gpuagent.cli.follow import OutputCopy
from gpuagent.cli.progress import ProgressLine, ReadGpus, has_terminal
from gpuagent.experiment.conduct import Journal
from gpuagent.experiment.plan import Trial, describe_apart
from gpuagent.runs.events import EventTailer
from gpuagent.runs.steps import write_figure
from gpuagent_common.text import harmless, shorten_options, write_duration
from gpuagent_proto.v1.run_pb2 import RunUpdate

_MOST_LABEL_CHARACTERS = 44
# For the place and the figures of a run, beside its label.
_FIGURES_CHARACTERS = 46

# Reading the temperatures takes less than a second.
_COOL_DOWN_SECONDS = 1.0


class RunLines:
    """A display of an experiment's progress, with a line for each run.

    Args:
        journal: of the runs that have ended.
        every: the runs of the experiment in their order.
    """

    def __init__(self, journal: Journal, every: Sequence[Trial]) -> None:
        self._journal, self._every = journal, every
        self.read_gpus: ReadGpus = lambda _run_id: []
        cells = list({trial.cell.key: trial.cell for trial in every}.values())
        self._labels = {key: harmless(words) for key, words in describe_apart(cells).items()} if cells else {}
        room = shutil.get_terminal_size().columns - _FIGURES_CHARACTERS
        most = max(12, min(_MOST_LABEL_CHARACTERS, room))
        short = shorten_options(list(self._labels.values()), most)
        self._labels = dict(zip(self._labels, short, strict=True))
        self._width = min(max(map(len, short), default=0), most)
        self.first_repeat = every[0].repeat if every else 1
        self._counted = [trial for trial in every if trial.repeat > 0]
        self._places = {(trial.cell.key, trial.repeat): at for at, trial in enumerate(self._counted, start=1)}
        self._notices: set[str] = set()
        self._current: Trial | None = None
        self._live: OutputCopy | None = None

    @property
    def made(self) -> int:
        """The number of runs that are compared and have ended."""
        return len(self._journal.ended(self._counted))

    @property
    def planned(self) -> int:
        """The number of runs that are compared."""
        return len(self._counted)

    def wait(self, trial: Trial, reason: str) -> None:
        """Print why the next run waits."""
        self.close()
        self._print(trial, reason)

    def begin(self, trial: Trial) -> None:
        """Take note that a run begins; its line is drawn once it has a directory."""
        self._current = trial

    def follow(self, update: RunUpdate) -> None:
        """Draw the line of a run that has started, on a terminal, until it has ended."""
        if update.status != "running" or self._live or self._current is None or not has_terminal():
            return
        left = self._journal.expected_seconds(self._journal.left(self._every)) or None
        folder, title = Path(update.run_directory), self._title(self._current).rstrip()
        progress = ProgressLine(update.run_id, folder, self.read_gpus, left, title=title)
        self._live = OutputCopy(folder, progress, quiet_stdout=True, is_silent=True)

    def end(self, trial: Trial, update: RunUpdate, seconds: float, cool_down_seconds: float) -> None:
        """Print how a run ended, and where no line is redrawn also the expected time of the rest."""
        self.close()
        digest = EventTailer(update.run_id, Path(update.run_directory)).read_all()
        took = write_duration(update.seconds if update.HasField("seconds") else seconds)
        parts = [took] if update.status == "succeeded" else [f"{update.status.replace('_', ' ')} after {took}"]
        if isinstance(value := digest.results.get("throughput"), float | int):
            parts.append(f"{write_figure(value)} {digest.units.get('throughput', '')}".rstrip())
        if cool_down_seconds >= _COOL_DOWN_SECONDS:
            parts.append(f"after {cool_down_seconds:.1f} s of cool-down")
        if update.reason:
            parts.append(harmless(update.reason))
            # A program that did not start has no exit code and no output.
            parts += [f"output: {update.run_directory}"] if update.HasField("exit_code") else []
        left = self._journal.left(self._every)
        if left and update.status == "succeeded" and not has_terminal():
            parts.append(f"about {write_duration(self._journal.expected_seconds(left))} left")
        self._print(trial, " · ".join(parts))
        for notice in filter(None, (update.notice, digest.complaint)):
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
        if len(label) > self._width:
            label = f"{label[: self._width // 2]}…{label[len(label) - (self._width - self._width // 2 - 1) :]}"
        number = len(str(self.planned))
        place = self._places.get((trial.cell.key, trial.repeat))
        where = f"[{place:>{number}}/{self.planned}]" if place else f"[{'warm-up':^{2 * number + 1}}]"
        return f"{where} {label:<{self._width}}"

    def _print(self, trial: Trial, words: str) -> None:
        click.echo(f"{self._title(trial)}  {words}", err=True)
