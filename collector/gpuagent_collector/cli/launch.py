"""`collector launch`: have connected agents run something."""

import shlex
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gpuagent_collector.cli.options import CollectorOptions, collector_options, stored_workloads
from gpuagent_collector.cli.printing import asking, print_error
from gpuagent_common.cli import ProgramCommand, parse_labels
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.run_spec import RUN_PARAMETERS, check_words, make_spec, run_options
from gpuagent_common.waiting import waiting_for

if TYPE_CHECKING:
    from gpuagent_collector.launching.agents import Agent, AnAnswer, Refusals, Spread, Target
    from gpuagent_collector.launching.client import RunsClient
    from gpuagent_collector.launching.progress import AWork, ExperimentProgress, RunProgress
    from gpuagent_collector.present.terminal import ListColumn
    from gpuagent_collector.query.ask import Ask
    from gpuagent_collector.query.remote import RemoteReader
    from gpuagent_proto.v1.run_pb2 import ExperimentFile, RunSpec

_EXAMPLES = """\b
Examples:
  collector launch mnist --on platform=satori --repeat 7 --wait
  collector launch resnet18 --on label.rack=7,platform=satori --all
  collector launch --on node=gpu-3 --wait -- python train.py --lr 0.1
  collector launch mnist --epochs 3 --environment docker:lab/mnist:2
  collector launch study.yaml --on platform=satori --wait
"""

# A file sets all of a run but its name and the number of repeats.
_OF_RUNS = {*RUN_PARAMETERS, "labels"} - {"experiment", "repeat"}
_OF_FILES = ("only", "force", "output")

# An agent that has just connected gets this long to describe itself.
_LOOKS = 20
_LOOK_SECONDS = 0.2

# The answer is printed without the last samples if they take longer to reach the store.
_DELIVERY_SECONDS = 20.0
_DELIVERY_LOOK_SECONDS = 0.5

# The ended runs of an experiment whose figures the collector still computes; a run that never began gets none.
_WITHOUT_FIGURES = """
SELECT run_id FROM runs WHERE experiment = ? AND started_at IS NOT NULL AND ended_at IS NOT NULL
AND run_id NOT IN (SELECT run_id FROM metrics)"""


@click.command(cls=ProgramCommand, context_settings={"ignore_unknown_options": True}, epilog=_EXAMPLES)
@click.argument(
    "words",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="WORKLOAD [--KEY VALUE]… | FILE | -- PROGRAM [ARGUMENT]…",
    shell_complete=stored_workloads,
)
@click.option(
    "--on",
    "targets",
    multiple=True,
    metavar="TERMS",
    help="Agents with platform=NAME, node=NAME, label.KEY=VALUE; comma-separated, repeatable.  [default: the only one]",
)
@click.option("--all", "on_all", is_flag=True, help="Launch on every agent that matches.")
@click.option("--any", "on_any", is_flag=True, help="Launch on the matching agent with the fewest runs.")
@run_options(
    repeat={"type": click.IntRange(1, 10_000), "help": "Runs per agent; of FILE, repeats."},
    experiment={"help": "Name that groups the runs.", "show_default": "made for this launch, or FILE's"},
)
@click.option("--label", "labels", multiple=True, metavar="K=V", help="Label the runs; repeatable.")
@click.option("--only", metavar="K=V", multiple=True, help="Of FILE, only cells of this environment or workload.")
@click.option("--force", is_flag=True, help="Start FILE despite objections, such as busy GPUs.")
@click.option(
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Of FILE, folder of its answer.  [default: NAME-answer]",
)
@click.option("--wait", is_flag=True, help="Follow the runs to their end; Ctrl-C leaves them running.")
@click.option("--json", "as_json", is_flag=True, help="Print the runs as JSON.")
@collector_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    words: tuple[str, ...],
    targets: tuple[str, ...],
    on_all: bool,
    on_any: bool,
    wait: bool,
    as_json: bool,
    collector: CollectorOptions,
    only: tuple[str, ...],
    force: bool,
    output: Path | None,
    **asked: Any,
) -> int:
    """Launch a workload, program or experiment on agents.

    An agent makes one measured run at a time, in the order of the launches. It accepts images and programs other than
    the built-in workloads only if its owner started it with --allow-commands. FILE is an experiment file, or the name
    of a built-in study; launched again after an interruption, it resumes. The exit code is 0 if the agents accepted
    the work, or with --wait if all runs succeeded.
    """
    from gpuagent_collector.launching.agents import Spread, Target
    from gpuagent_collector.launching.client import RunsClient
    from gpuagent_collector.launching.experiment_file import find_file, read_file
    from gpuagent_common.program_name import name_program

    if on_all and on_any:
        raise MisuseError("--all and --any contradict each other; give one of them")
    parsed = [Target.parse(text) for text in targets]
    spread = Spread.ALL if on_all else Spread.ANY if on_any else Spread.ONE

    def open_launch(reader: "RemoteReader") -> _Launch:
        ask = asking(reader, show_sql=False)
        return _Launch(reader=reader, client=RunsClient(reader), ask=ask, targets=parsed, spread=spread, wait=wait)

    path = find_file(words[0]) if words else None
    if path is None or ctx.meta.get("program"):
        _reject_options(ctx, _OF_FILES, "only with an experiment file")
        program = ctx.meta.get("program", [])
        check_words(words, program)
        spec = make_spec(words[0] if words else None, program, words[1:], parse_labels(asked.pop("labels")), **asked)
        # One name for all runs of this launch, on whichever agents.
        named = spec.workload or spec.name or name_program(program)
        spec.experiment = spec.experiment or f"{named[:60]}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
        with collector.open() as reader:
            return open_launch(reader).runs(spec, as_json=as_json)
    _reject_options(ctx, _OF_RUNS, "not with an experiment file, which sets that itself")
    if words[1:]:
        raise MisuseError(f"unexpected argument {words[1]!r}: {path} sets its parameters itself")
    repeats = asked["repeat"] if _is_given(ctx, "repeat") else None
    file = read_file(path, name=asked["experiment"], repeats=repeats, only=only, force=force)
    with collector.open() as reader:
        return open_launch(reader).experiment(file, output, as_json=as_json)


def _is_given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _reject_options(ctx: click.Context, names: Collection[str], why: str) -> None:
    given = [option.opts[0] for option in ctx.command.params if option.name in names and _is_given(ctx, option.name)]
    if given:
        raise MisuseError(f"{', '.join(given)}: {why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launch:
    """One launch over an open connection."""

    reader: "RemoteReader"
    client: "RunsClient"
    ask: "Ask"
    targets: "Sequence[Target]"
    spread: "Spread"
    wait: bool

    def runs(self, spec: "RunSpec", *, as_json: bool) -> int:
        """Launch runs, follow them if asked to, print them; return the exit code."""
        from gpuagent_collector.launching.progress import RunProgress, count_by_status, read_progress, runs_to_json
        from gpuagent_collector.launching.show import ENDED_RUN_COLUMNS
        from gpuagent_collector.runs.words import write_command

        accepted, refusals = self._offer(lambda sessions: self.client.launch(sessions, spec))
        runs: Sequence[RunProgress] = [
            RunProgress(run_id=run_id, agent=agent) for agent, answer in accepted for run_id in answer.run_ids
        ]

        def look() -> "Mapping[str, RunProgress]":
            found = dict(read_progress(self.ask, runs))
            if len(found) < len(runs):
                # The store has a run within seconds of its launch, if its agent lives.
                connected = {agent.session_uuid for agent in self.client.agents()}
                found |= {run.key: run for run in runs if run.key not in found and run.agent.session_uuid in connected}
            return found

        if runs:
            runs = self._follow(runs, look, "the runs continue", spec.experiment)
        _print_work(runs, ENDED_RUN_COLUMNS, runs_to_json(runs, refusals) if as_json else None)
        if self.wait and runs and not as_json:
            if runs[1:]:
                click.echo(count_by_status(runs))
            name = spec.experiment if spec.experiment and runs[1:] else runs[0].run_id
            _print_command("Next", write_command("show", {}, name))
        has_failed = self.wait and not all(run.has_succeeded for run in runs)
        return int(bool(refusals) or not runs or has_failed)

    def experiment(self, file: "ExperimentFile", output: Path | None, *, as_json: bool) -> int:
        """Launch an experiment file, follow it if asked to, print and write its answer; return the exit code."""
        from gpuagent_collector.cli.answer import answer_question, check_answers, check_folder
        from gpuagent_collector.launching.experiment_file import answers_in, read_question
        from gpuagent_collector.launching.progress import ExperimentProgress, experiment_to_json
        from gpuagent_collector.launching.show import EXPERIMENT_COLUMNS

        check_answers(answers_in(file))
        if output:
            check_folder(output)
        accepted, refusals = self._offer(lambda sessions: self.client.launch_experiment(sessions, file))
        if not accepted:
            return 1
        by_session = {
            agent.session_uuid: ExperimentProgress(agent=agent, state=answer.state) for agent, answer in accepted
        }
        question = read_question(file)
        name, folder = question.name, output or Path(f"{question.name}-answer")
        later = shlex.join(["collector", "answer", file.file_name, *(["--name", file.name] if file.name else [])])

        def look() -> "Mapping[str, ExperimentProgress]":
            answers = self.client.experiments(list(by_session), name)
            return {
                each.session_uuid: ExperimentProgress(agent=by_session[each.session_uuid].agent, state=each.state)
                for each in answers
                if each.HasField("state")
            }

        if self.wait:
            _print_reasons(list(by_session.values()))
        launched = self._follow(list(by_session.values()), look, "the experiment continues", name)
        is_stored = self.wait and self._await_data(launched, name)
        if question.answers and not self.wait:
            _print_command("when it is complete", later)
        words = [shlex.join(each.words) for each in question.answers]
        document = experiment_to_json(name, launched, refusals, words) if as_json else None
        _print_work(launched, EXPERIMENT_COLUMNS, document)
        if self.wait and not as_json:
            if any(each.state.status not in ("complete", "incomplete") for each in launched):
                print_error("launch the file again to resume it")
            elif question.answers and is_stored:
                answer_question(question, self.reader, folder)
            elif question.answers:
                _print_command(f"the last runs did not reach the store within {_DELIVERY_SECONDS:g} s; later", later)
        has_failed = self.wait and not all(each.has_succeeded for each in launched)
        return int(bool(refusals) or has_failed)

    def _offer(
        self, send: "Callable[[Sequence[str]], Sequence[AnAnswer]]"
    ) -> "tuple[list[tuple[Agent, AnAnswer]], Refusals]":
        """Offer work to the chosen agents, and print the refusals."""
        from gpuagent_collector.launching.agents import choose_agents, offer_work

        agents = self._describe_agents()
        try:
            chosen = choose_agents(agents, self.targets, self.spread)
        except GpuAgentError:
            from gpuagent_collector.launching.show import agent_columns
            from gpuagent_collector.present.terminal import plain_console, print_list

            if agents:
                print_list(agent_columns(agents), [{"agent": agent} for agent in agents], plain_console(sys.stderr))
            raise
        accepted, refusals = offer_work(chosen, self.spread, send)
        nodes: dict[str, list[str]] = {}
        for agent, refusal in refusals:
            nodes.setdefault(refusal, []).append(f"{agent.node}, platform {agent.platform},")
        for refusal, names in nodes.items():
            print_error(f"the agent on {' and '.join(names)} refused: {refusal}")
        return accepted, refusals

    def _describe_agents(self) -> "Sequence[Agent]":
        """Return the connected agents, once the store has the platform of each, or after a while."""
        from gpuagent_collector.launching.agents import describe_agents

        for _ in range(_LOOKS):
            agents = describe_agents(self.client.agents(), self.ask)
            if all(agent.platform for agent in agents):
                break
            time.sleep(_LOOK_SECONDS)
        return agents

    def _follow(
        self,
        launched: "Sequence[AWork]",
        look: "Callable[[], Mapping[str, AWork]]",
        continues: str,
        experiment: str,
    ) -> "Sequence[AWork]":
        """Follow work to its end, if asked to. Ctrl-C leaves it running, as it does jobs of a cluster."""
        from gpuagent_collector.launching.progress import follow
        from gpuagent_collector.launching.show import open_display

        stop = f"collector cancel --experiment {shlex.quote(experiment)}"
        if not self.wait:
            _print_command("to stop", stop)
            return launched
        try:
            with open_display() as display:
                return follow(launched, look, display)
        except KeyboardInterrupt:
            click.echo("", err=True)
            _print_command(f"{continues}; to stop", stop)
            raise

    def _await_data(self, launched: "Sequence[ExperimentProgress]", experiment: str) -> bool:
        """Wait for the last runs to reach the store and get their figures; return whether the store has them."""
        from gpuagent_collector.query.named_runs import find_run

        awaited = {each.state.run_id for each in launched if each.state.run_id and each.state.status != "lost"}
        deadline = time.monotonic() + _DELIVERY_SECONDS
        with waiting_for("collector", "the last runs to reach the store and get their figures"):
            while not (
                (is_stored := all(find_run(self.ask, run_id).has_ended for run_id in awaited))
                and not self.ask(_WITHOUT_FIGURES, [experiment])
            ):
                if time.monotonic() > deadline:
                    break
                time.sleep(_DELIVERY_LOOK_SECONDS)
        return is_stored


def _print_reasons(launched: "Sequence[ExperimentProgress]") -> None:
    """Print which cells nodes skip, before anything runs."""
    for each in launched:
        if each.state.reason:
            print_error(f"{each.agent.node}: {each.state.reason}")


def _print_command(lead: str, command: str) -> None:
    """Print a command to continue with, on a line of its own where the terminal has no room beside its lead."""
    from gpuagent_collector.present.terminal import plain_console, shell_lines

    width = plain_console(sys.stderr).width
    is_short = len(f"collector: {lead}: {command}") <= width
    print_error(f"{lead}: {command}" if is_short else f"{lead}:")
    for line in [] if is_short else shell_lines(command, width):
        click.echo(line, err=True)


def _print_work(work: "Sequence[AWork]", columns: "Sequence[ListColumn]", document: str | None) -> None:
    from gpuagent_collector.present.terminal import plain_console, print_list

    if document is not None:
        click.echo(document)
    elif work:
        print_list(columns, [{"work": each} for each in work], plain_console(sys.stdout))
