"""`gpuagent run`: run a workload or any command, and measure it."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuagent.cli.collector_command import connection_words, find_collector_command
from gpuagent.cli.node_agent import given_to_agent, node_agent
from gpuagent.cli.options import agent_config, agent_options, complete_workloads, run_options
from gpuagent_common.cli import ProgramCommand, interrupt_on_signals
from gpuagent_common.errors import MisuseError
from gpuagent_common.run_spec import check_words
from gpuagent_common.text import write_duration
from gpuagent_common.waiting import waiting_for

if TYPE_CHECKING:
    from gpuagent.agent_config import AgentConfig
    from gpuagent.cli.follow import FollowedRun

# The figures of the runs are left to `collector runs RUN` if they take longer to reach the store, or to be computed.
_DELIVERED_SECONDS = 5.0
_FIGURES_SECONDS = 30.0


@click.command(
    cls=ProgramCommand,
    context_settings={"ignore_unknown_options": True},
    options_metavar="[OPTIONS]",
    epilog="""\b
Examples:
  gpuagent run mnist --repeat 3
  gpuagent run mnist --batch-size 128 --with cpu-burn
  gpuagent run --platform laptop -- python train.py --lr 0.1""",
)
@click.argument(
    "words",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="WORKLOAD [--KEY VALUE]… | -- PROGRAM [ARGUMENT]…",
    shell_complete=complete_workloads,
)
@run_options
@agent_options
@click.option("--json", "as_json", is_flag=True, help="Print runs and results as JSON, the program's output to stderr.")
@click.pass_context
def command(ctx: click.Context, /, words: tuple[str, ...], as_json: bool, **options: Any) -> int:
    """Run a workload or any command, and measure it.

    The node's running agent executes it; if none runs, this command is the agent until the run has ended. Without a
    collector, samples wait in the spool, and the next agent on this node delivers them. The program gets no standard
    input. The exit code is the program's own; 1 if --deliver-within was exceeded.
    """
    from gpuagent.cli.follow import Follower, describe_misplaced
    from gpuagent.cli.progress import has_terminal
    from gpuagent.cli.spec import run_spec

    program = ctx.meta.get("program", [])
    check_words(words, program)
    _check_program(words)
    config = agent_config(options, allow_commands=True)
    spec = run_spec(words[0] if words else None, program, words[1:], config.labels, **options)
    follower = Follower(spec, quiet_stdout=as_json)
    interrupt_on_signals()
    with node_agent(config, given_to_agent(ctx), spec) as agent:
        follower.read_gpus = agent.read_gpus
        began = time.monotonic()
        try:
            follower.follow(agent.submit(spec))
        except KeyboardInterrupt:
            ended = sum(run.has_ended for run in follower.runs)
            before = f"; {ended} of {spec.repeats} runs had ended" if spec.repeats > 1 else ""
            # The run itself ends with the agent's services to this command.
            click.echo(f"gpuagent: cancelled after {write_duration(time.monotonic() - began)}{before}", err=True)
            raise click.exceptions.Exit(130) from None
        deadline = time.monotonic() + _DELIVERED_SECONDS
        with waiting_for("gpuagent", "the collector to take the last messages"):
            while has_terminal() and agent.waiting() and time.monotonic() < deadline:
                time.sleep(0.1)
    failed = [run for run in follower.runs if run.update.status == "failed"]
    if failed and (misplaced := describe_misplaced(ctx, program, Path(failed[0].update.run_directory))):
        click.echo(f"gpuagent: {misplaced}", err=True)
    if as_json:
        click.echo(json.dumps([run.as_json() for run in follower.runs], indent=2))
    if has_terminal() and (as_json or agent.left_behind() or not _describe(config, follower.runs)):
        follower.print_steps()
    is_late = config.delivery.through_failures and agent.left_behind() > 0
    return follower.exit_code or int(is_late)


def _check_program(words: Sequence[str]) -> None:
    """Raise MisuseError for a program's words that are not behind `--`."""
    # No workload has a blank in its name, or words without hyphens behind it.
    if words and (" " in words[0] or (shutil.which(words[0]) and words[1:] and not words[1].startswith("-"))):
        line = " ".join([words[0], *map(shlex.quote, words[1:])])
        raise MisuseError(f"a program follows `--`: gpuagent run -- {line:.120}")


def _describe(config: "AgentConfig", runs: Sequence["FollowedRun"]) -> bool:
    """Print the paragraph of `collector runs` on the runs; return False if that command or the collector fails."""
    program = find_collector_command()
    if not program or not runs:
        return False
    # The line at the end of a single run says how it ended.
    words = [program, "runs", "--is-ending-known", *(run.run_id for run in runs), *connection_words(config)]
    wide = {**os.environ, "COLUMNS": str(shutil.get_terminal_size().columns)}
    try:
        with waiting_for("gpuagent", "the collector to compute the figures of the runs"):
            asked = subprocess.run(words, capture_output=True, timeout=_FIGURES_SECONDS, check=False, env=wide)
    except (OSError, subprocess.TimeoutExpired):
        return False
    sys.stderr.write(asked.stdout.decode("utf-8", "replace"))
    return asked.returncode == 0
