"""The part of `collector launch` that has agents carry out an experiment file."""

import shlex
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gpuagent_collector.cli.asking import asking
from gpuagent_collector.cli.choosing import Choice, chosen_agents, tell_refusals
from gpuagent_collector.cli.options import CollectorOptions
from gpuagent_collector.output.text import harmless
from gpuagent_common.errors import GpuAgentError

if TYPE_CHECKING:
    from gpuagent_collector.launching.client import RunsClient
    from gpuagent_collector.launching.conducted import OnAgent
    from gpuagent_collector.launching.export import Refusals
    from gpuagent_collector.query.remote import RemoteReader
    from gpuagent_proto.v1.run_pb2 import ExperimentFile, ExperimentState

_DELIVERED_SECONDS = 20.0
# How long the last samples may take to reach the store before the answer is asked for without them.
_DELIVERED_LOOK_SECONDS = 0.5

# Options that say which collector is asked.
_CONNECTION = ("collector", "token_file", "ca_file", "client_cert", "client_key")


def launch_experiment(
    ctx: click.Context,
    file: "ExperimentFile",
    choice: Choice,
    collector: CollectorOptions,
    *,
    wait: bool,
    as_json: bool,
) -> int:
    """Have agents carry out a file; with `wait` follow them to the end, and print what answers it.

    Raises:
        GpuAgentError: the collector cannot be asked, or there is no agent.
    """
    from gpuagent_collector.launching.client import RunsClient
    from gpuagent_collector.launching.experiments import name_and_answers

    with collector.open() as reader:
        client = RunsClient(reader)
        launched, refusals = _offer(client, reader, file, choice)
        if not launched:
            return 1
        name, commands = name_and_answers(file)
        remedy = f"to stop it: collector cancel --experiment {shlex.quote(name)}"
        is_stored = False
        if wait:
            launched = _wait(client, name, launched, remedy)
            is_stored = _await_data(reader, launched)
        else:
            _say(remedy)
            _tell_for_later("when it is complete", commands)
    _print(name, launched, refusals, commands, as_json=as_json)
    if wait and not as_json:
        _answer(ctx, launched, commands, is_stored=is_stored)
    has_failed = wait and not all(each.has_succeeded for each in launched)
    return int(bool(refusals) or has_failed)


def _offer(
    client: "RunsClient", reader: "RemoteReader", file: "ExperimentFile", choice: Choice
) -> "tuple[Sequence[OnAgent], Refusals]":
    """Offer the file to the agents that are meant; return who took it, and who refused, which is told."""
    from gpuagent_collector.launching.conducted import OnAgent
    from gpuagent_collector.launching.launch import offer

    agents = chosen_agents(client, reader, choice)
    offered = offer(agents, choice.spread, lambda sessions: client.launch_experiment(sessions, file))
    tell_refusals(offered.refusals)
    return [OnAgent(agent=agent, state=said.state) for agent, said in offered.taken], offered.refusals


def _wait(client: "RunsClient", name: str, launched: "Sequence[OnAgent]", remedy: str) -> "Sequence[OnAgent]":
    """Follow the experiment to its end; Ctrl-C leaves it going."""
    from gpuagent_collector.launching.conducted import Lines, follow

    sessions = [each.agent.session_uuid for each in launched]

    def look() -> "dict[str, ExperimentState]":
        said = client.experiments(sessions, name)
        return {each.session_uuid: each.state for each in said if each.HasField("state")}

    try:
        return follow(launched, look, Lines(_say))
    except KeyboardInterrupt:
        click.echo(f"\ncollector: the experiment goes on; {harmless(remedy)}", err=True)
        raise


def _await_data(reader: "RemoteReader", launched: "Sequence[OnAgent]") -> bool:
    """Wait until the store has the last runs; return whether it has."""
    from gpuagent_collector.launching.names import find_run

    ask = asking(reader, show_sql=False)
    waits_for = {each.state.run_id for each in launched if each.state.run_id and each.state.status != "lost"}
    deadline = time.monotonic() + _DELIVERED_SECONDS
    while not (is_stored := all(find_run(ask, run_id).has_ended for run_id in waits_for)):
        if time.monotonic() > deadline:
            break
        time.sleep(_DELIVERED_LOOK_SECONDS)
    return is_stored


def _say(words: str) -> None:
    click.echo(f"collector: {harmless(words)}", err=True)


def _tell_for_later(when: str, commands: Sequence[Sequence[str]]) -> None:
    for words in commands:
        _say(f"{when}: collector {shlex.join(words)}")


def _print(
    name: str,
    launched: "Sequence[OnAgent]",
    refusals: "Refusals",
    commands: Sequence[Sequence[str]],
    *,
    as_json: bool,
) -> None:
    from gpuagent_collector.launching.export import experiment_to_json
    from gpuagent_collector.launching.show import experiment_columns
    from gpuagent_collector.output.listing import print_list
    from gpuagent_collector.output.terminal import plain_console

    if as_json:
        click.echo(experiment_to_json(name, launched, refusals, [shlex.join(words) for words in commands]))
    else:
        print_list(experiment_columns(), [{"on": each} for each in launched], plain_console(sys.stdout))


def _answer(
    ctx: click.Context, launched: "Sequence[OnAgent]", commands: Sequence[Sequence[str]], *, is_stored: bool
) -> None:
    """Print what answers the question, once nothing more is to come of it."""
    if any(each.state.status not in ("complete", "incomplete") for each in launched):
        _say("launched again, the file goes on where it stopped")
        return
    if not is_stored:
        _say(f"the last runs have not reached the store within {_DELIVERED_SECONDS:g} s")
        _tell_for_later("when they have", commands)
        return
    given = {f"--{name.replace('_', '-')}": ctx.params[name] for name in _CONNECTION if ctx.params[name]}
    place = [word for option, value in given.items() for word in (option, str(value))]
    for words in commands:
        click.echo(f"\n$ collector {shlex.join(words)}", err=True)
        try:
            ctx.find_root().command.main([*words, *place], prog_name="collector", standalone_mode=False)
        except GpuAgentError as error:
            _say(str(error))
        except click.ClickException as error:
            error.show()
