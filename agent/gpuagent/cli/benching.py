"""The execution of one `gpuagent bench`: its collector, its runs, its answer."""

import contextlib
import hashlib
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from gpuagent.agent_config import AgentConfig, find_place
from gpuagent.cli.collector_command import (
    connection_words,
    find_collector_command,
    is_reachable,
    own_collector,
    why_refused,
)
from gpuagent.cli.conducting import RunLines, make_runs
from gpuagent.cli.experiment_answer import await_figures
from gpuagent.cli.follow import describe_misplaced, read_last_lines
from gpuagent.experiment import plan
from gpuagent.experiment.bench import digest_bench, name_bench
from gpuagent.experiment.conduct import (
    ChangedProgramError,
    Journal,
    check_cells,
    check_concerns,
    check_parameters,
    occupant_concerns,
    torch_concerns,
)
from gpuagent.experiment.file import Experiment, parse_experiment
from gpuagent.experiment.gpus import NodeGpus
from gpuagent.experiment.plan import Trial
from gpuagent.locations import lock
from gpuagent.runs.catalogue import Catalogue
from gpuagent.runs.planning import Planner
from gpuagent_common.connection import READ_LATER_VARIABLE, WHOLE_ANSWER_VARIABLE, default_token_file
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.run_spec import check_workload_name
from gpuagent_common.text import counted, harmless
from gpuagent_proto.v1.run_pb2 import RunSpec, RunUpdate

_STORE = "runs.duckdb"

_TABLES = {".csv": "csv", ".json": "json", ".md": "markdown", ".tex": "latex"}
_FIGURES = (".png", ".svg", ".pdf")

# Options that are for the steps of a program.
_OF_STEPS = ("observe", "pattern", "items_per_step")

# In the reason of a search for the highest load that had too few windows.
_MORE_WINDOWS = re.compile(r"give --find-windows (\d+)$")
_IS_WINDOWS = re.compile(r"(--)?find[-_]windows=")

# Runs that are shorter than this are not much longer than it takes to notice their end (docs/bench.md).
_LEAST_SECONDS = 0.1


class FirstRoundError(GpuAgentError):
    """A run of the first round failed: nothing is worth repeating."""


def check_output(file: Path, *, is_workload: bool) -> None:
    """Raise MisuseError for a file of the answer that could not be written at the end."""
    if file.suffix not in (".html", *_TABLES, *_FIGURES):
        hint = f"; the workload's own is --param output={file}" if is_workload else ""
        raise MisuseError(f"-o takes a name that ends in .html, {', '.join((*_TABLES, *_FIGURES))}; not {file}{hint}")
    if not file.absolute().parent.is_dir():
        raise MisuseError(f"the directory {file.parent} does not exist; run: mkdir -p {file.parent}")
    is_new = not os.path.lexists(file)
    try:
        file.open("ab").close()
    except OSError as error:
        raise MisuseError(f"cannot write {file}: {str(error.strerror).lower()}") from error
    if is_new:
        file.unlink()


@dataclass(slots=True, kw_only=True)
class Bench:
    """The runs of one command line.

    Attributes:
        content: of its experiment file, without a name.
        given: names of the agent's own options on the command line.
        store: where to store without a collector; None: a collector is used if one listens.
        prepare: a command for the shell before each run.
        files: of the answer.
        context: of `gpuagent bench`.
    """

    content: Mapping[str, Any]
    config: AgentConfig
    given: Sequence[str]
    store: str | None
    prepare: str | None
    files: Sequence[Path]
    context: click.Context
    force: bool
    # The store that is not found without its name, as an option.
    _store_words: tuple[str, ...] = ()
    _gpus: NodeGpus = field(default_factory=NodeGpus)
    # The experiment file while its runs are being made, beside its journal: the same command line finds it again.
    _path: Path = field(init=False)

    def run(self, *, anew: bool) -> int:
        """Make the runs and print the answer; return 1 if a run failed.

        Raises GpuAgentError: a run of the first round failed.
        """
        folder, node_id = find_place(self.config)
        uses_collector = self.store is None and is_reachable(self.config.collector)
        # At the usual address another user's may listen.
        refusal = why_refused(self.config) if uses_collector and "collector" not in self.given else None
        if refusal is not None:
            uses_collector = False
            click.echo(f"gpuagent: this bench stores in {_STORE}: {refusal}", err=True)
        store = self.store or _STORE
        place = self.config.collector if uses_collector else store_place(store)
        # What began in one place and as one platform goes on there.
        settled = {"prepare": self.prepare, "place": place, "platform": self.config.platform, "node": node_id}
        key = digest_bench({**self.content, **settled}, str(Path.cwd()))
        self._path = folder / "experiments" / f"bench-{key}.json"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with lock(self._path.with_suffix(".lock"), held="another command makes these runs here"):
            is_there = uses_collector or ":postgres:" in store or Path(store.removeprefix("ducklake:")).exists()
            # Without its store, what was stored of an interrupted one is lost.
            journal = self._open_journal(anew=anew or not is_there)
            if uses_collector:
                return self._answer(journal, "")
            if self.store is None and "collector" in self.given:
                click.echo(f"gpuagent: no collector listens at {self.config.collector}", err=True)
            with own_collector(store, default_token_file()) as address:
                self.config = replace(with_own_spool(self.config, store), collector=address)
                self.given = [*self.given, "collector", "spool"]
                self._store_words = ("--store", store) if self.store or refusal is not None else ()
                return self._answer(journal, f"in {store} as {journal.experiment.name}")

    def _open_journal(self, *, anew: bool) -> Journal:
        """Return the journal of an interrupted bench that can go on, or of a new one."""
        path = self._path.with_suffix(".jsonl")
        if self._path.exists() and not anew:
            experiment = parse_experiment(self._path.read_bytes(), str(self._path))
            try:
                return Journal(path, experiment)
            except ChangedProgramError as error:
                what = str(error).partition("; ")[0]
                click.echo(f"gpuagent: {what}, so this begins anew; those stay stored", err=True)
        self._path.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        return Journal(path, self._new_experiment())

    def _new_experiment(self) -> Experiment:
        return parse_experiment(json.dumps({"name": name_bench(self.content), **self.content}).encode(), "bench")

    def _forget(self) -> None:
        for ending in (".json", ".jsonl", ".lock"):
            self._path.with_suffix(ending).unlink(missing_ok=True)

    def check(self) -> None:
        """Raise GpuAgentError for what cannot run here, before anything starts."""
        experiment, gpus = self._new_experiment(), self._gpus
        plan.narrowed(experiment, ())
        catalogue = Catalogue(self.config.python)
        try:
            if name := experiment.cells[0].asked.workload:
                catalogue.find(name)
        except MisuseError as error:  # a word that is no program was taken for a workload
            check_workload_name(name, self.context.params["words"][1:])
            raise MisuseError(f"this node has no program {name!r:.40}; {error}") from error
        planner = Planner(catalogue, allow_commands=True)
        # A program may be made by --prepare.
        here = "" if self.prepare else str(Path.cwd())
        try:
            lacking = check_cells(experiment, planner.plan, gpus, working_directory=here)
        except MisuseError as error:
            raise MisuseError(_describe(error, experiment.cells[0].asked, catalogue)) from error
        check_parameters(experiment, catalogue.check_together)
        if lacking:
            raise GpuAgentError("; ".join(dict.fromkeys(lacking.values())))
        concerns = [*occupant_concerns(experiment, gpus), *torch_concerns(experiment, self.config.python, gpus)]
        check_concerns(concerns, force=self.force)

    def _answer(self, journal: Journal, place: str) -> int:
        """Make the runs that are left, print the answer and write its files."""
        experiment = journal.experiment
        lines = _BenchLines(journal, self.context)
        if journal.done:
            lines.note(f"resumes: {lines.made} of {lines.planned} runs are stored; --anew makes all of them")
        unfinished = self._path.with_suffix(".new")
        unfinished.write_text(json.dumps({"name": experiment.name, **self.content}), encoding="utf-8")
        unfinished.replace(self._path)
        try:
            is_stored, _ = make_runs(
                journal, self.config, self.given, self._gpus, lines, place=place, prepare=self._prepare
            )
        except FirstRoundError:
            self._forget()
            raise
        try:
            if not lines.made:
                raise GpuAgentError("no round fits into --at-most, so there is nothing to compare; give it more time")
            self._print(experiment, lines, is_stored=is_stored)
        except GpuAgentError:
            self._forget()
            raise
        self._forget()
        return int(any(done.status != "succeeded" for done in journal.done))

    def _prepare(self, _trial: Trial) -> None:
        if self.prepare is None:
            return
        done = subprocess.run(
            ["sh", "-c", self.prepare],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            last = "".join(f": {harmless(line):.100}" for line in done.stdout.strip().splitlines()[-1:])
            raise GpuAgentError(f"--prepare ended with exit code {done.returncode}{last}")

    def _print(self, experiment: Experiment, lines: "_BenchLines", *, is_stored: bool) -> None:
        """Print the comparison of the runs, and write the files; where that is impossible, the command for later."""
        program, connection = find_collector_command(), connection_words(self.config)
        answer = [*shlex.split(experiment.answers[0]), "--experiment", experiment.name]
        by = answer[1:]
        if program is None or not is_stored:
            reason = "when the collector has the samples" if program else "where `collector` is installed"
            lines.note(f"{reason}, run: collector {shlex.join([*answer, *self._store_words])}")
            return
        awaited = await_figures(program, experiment.name, connection)
        metric = "throughput"
        if answer[0] == "compare" and awaited.lacking:
            metric = "run_seconds"
            answer += ["--metric", metric]
            brief = "; those below 0.1 s are up to some ms too long" if lines.is_brief else ""
            reason = _say_lacking(experiment.cells[0].asked, is_partial=awaited.lacking < awaited.sides)
            lines.note(f"{reason}, so the figures are durations{brief}")
        failed: GpuAgentError | None = None
        for file in self.files:
            if file.suffix == ".html":
                command = [program, "report", str(file), "--force", *by, *connection]
            elif file.suffix in _FIGURES:
                command = [program, "plot", metric, *by, "-o", str(file), "--force", *connection]
            else:
                command = [program, *answer, "--format", _TABLES[file.suffix], *connection]
            try:
                # What else is printed, the answer says.
                self._ask(command, file if file.suffix in _TABLES else Path(os.devnull))
                lines.note(f"{file}: written")
            except GpuAgentError as error:
                failed = error
        further = [[*shlex.split(each), "--experiment", experiment.name] for each in experiment.answers[1:]]
        for words in (answer, *further):
            whole = f"collector {shlex.join([*words, *self._store_words, '--all'])}"
            self._ask([program, *words, *connection], whole=whole)
        if failed:
            raise failed

    def _ask(self, command: Sequence[str], file: Path | None = None, *, whole: str = "") -> None:
        """Print what a command of the collector prints, or write it into a file; raise GpuAgentError if it fails.

        `whole` is the command that prints all of it.
        """
        # The commands that it names read the store, and not the collector inside this one.
        later = {READ_LATER_VARIABLE: shlex.join(self._store_words), WHOLE_ANSWER_VARIABLE: whole}
        with contextlib.ExitStack() as stack:
            output = stack.enter_context(file.open("wb")) if file else None
            done = subprocess.run(
                command,
                env={**os.environ, **later},
                stdout=output,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                check=False,
            )
        said = [line for line in done.stderr.splitlines() if not line.startswith("reading ")]
        if done.returncode and not said:  # such as a reader of our output that has closed it
            raise click.exceptions.Exit(done.returncode)
        if done.returncode:
            raise GpuAgentError("; ".join(line.removeprefix("collector: ") for line in said))
        for line in said:
            click.echo(line, err=True)


def _say_lacking(asked: RunSpec, *, is_partial: bool) -> str:
    """Return why runs have no throughput, and which options had no effect."""
    if not asked.command:
        return "not every cell reports a throughput" if is_partial else "no throughput is reported"
    if is_partial:
        return "not every command prints 3 steps as it makes them"
    options = [f"--{name.replace('_', '-')}" for name in _OF_STEPS if getattr(asked, name)]
    without = f" ({', '.join(options)} had no effect)" if options else ""
    return f"no run prints 3 steps as it makes them{without}"


def _with_windows(words: Sequence[str], windows: str) -> list[str]:
    """Return the words of a bench with another --find-windows."""
    kept: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--find-windows" or (word in ("--param", "--vary") and rest[:1] and _IS_WINDOWS.match(rest[0])):
            rest.pop(0)
        elif not _IS_WINDOWS.match(word):
            kept.append(word)
    return [*kept, "--find-windows", windows]


def _describe(error: MisuseError, asked: RunSpec, catalogue: Catalogue) -> str:
    """Return why a cell cannot be planned, and what was probably meant."""
    if asked.command and asked.command[0] in catalogue.workloads():
        name = asked.command[0]
        return f"{name} is a built-in workload, which is compared alone: gpuagent bench {name} --vary NAME=A,B"
    lists = [f"{name}={value:.60}" for name, value in asked.parameters.items() if "," in value]
    return f"{error}; several values are --vary {lists[0]}" if lists else str(error)


def store_place(store: str) -> str:
    """Return a store's name, of a file with its folder."""
    return store if ":" in store else str(Path(store).absolute())


def with_own_spool(config: AgentConfig, store: str) -> AgentConfig:
    """Return the configuration for a collector of our own: what waits in the node's spool is for the node's one."""
    folder, node_id = find_place(config)
    return replace(
        config,
        tls=None,
        token_file=default_token_file(),
        node_id=config.node_id or node_id,
        spool=folder / "bench" / hashlib.sha256(store_place(store).encode()).hexdigest()[:8],
    )


class _BenchLines(RunLines):
    """A display that prints how failed programs ended, and ends a bench whose first round leaves nothing to compare.

    Args:
        context: of `gpuagent bench`, whose options a program may get by mistake.
    """

    def __init__(self, journal: Journal, context: click.Context) -> None:
        super().__init__(journal)
        self._context = context
        self._failed: set[str] = set()
        self._printed: list[list[str]] = []
        # Durations of the runs that succeeded, by cell.
        self._seconds: dict[str, list[float]] = {}

    @property
    def is_brief(self) -> bool:
        """True if the runs of a cell are so short that noticing their end is a part of them."""
        return any(statistics.median(seconds) < _LEAST_SECONDS for seconds in self._seconds.values())

    def end(self, trial: Trial, update: RunUpdate, seconds: float, cool_down_seconds: float) -> None:
        """Print how a run ended.

        Raises FirstRoundError: it failed in the first round, as all cells but one did, or the only one; or it refused
            an option of ours.
        """
        super().end(trial, update, seconds, cool_down_seconds)
        if update.status == "succeeded":
            if update.HasField("seconds"):
                self._seconds.setdefault(trial.cell.key, []).append(update.seconds)
            return
        directory = Path(update.run_directory)
        lines = list(read_last_lines(directory))
        if lines and harmless(update.reason).endswith(lines[-1].strip().removeprefix("error: ")):
            lines.pop()  # printed just before
        if workload := trial.cell.asked.workload:
            lines = [line for line in lines if not re.fullmatch(rf"{workload}: \w+", line)]  # its phases
        # Every command of a program prints the same usage.
        if lines not in self._printed:
            self._printed.append(lines)
            for line in lines:
                click.echo(f"  {line}", err=True)
        if trial.repeat <= self.first_repeat:
            self._failed.add(trial.cell.key)
            self._check_first_round(trial, update.reason, directory)

    def _check_first_round(self, trial: Trial, reason: str, directory: Path) -> None:
        """Raise FirstRoundError where a failure in the first round leaves nothing to compare."""
        if misplaced := describe_misplaced(self._context, trial.cell.asked.command, directory):
            raise FirstRoundError(misplaced)
        if len(self._failed) < max(1, len(self._labels) - 1):
            return
        if windows := _MORE_WINDOWS.search(reason):
            longer = shlex.join(["gpuagent", *_with_windows(sys.argv[1:], windows[1])])
            raise FirstRoundError(f"no search is repeated; to search longer, run: {longer}")
        commands = counted(len(self._labels), "command")
        raise FirstRoundError(f"{len(self._failed)} of {commands} failed in the first round, so nothing is repeated")
