"""The runs of an experiment, made by the node's agent or one of our own, and continued where they were interrupted."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

from gpuagent.agent_config import AgentConfig
from gpuagent.cli.experiment_answer import await_delivery, is_narrow
from gpuagent.cli.node_agent import PLANNING, node_agent
from gpuagent.cli.run_lines import RunLines
from gpuagent.errors import AgentEndedError
from gpuagent.experiment import plan
from gpuagent.experiment.conduct import Conductor, Journal
from gpuagent.experiment.gpus import NodeGpus
from gpuagent.experiment.plan import Trial
from gpuagent_common.text import write_duration
from gpuagent_common.waiting import waiting_for
from gpuagent_proto.v1.run_pb2 import RunSpec, RunUpdate


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
        journal: of the runs.
        config: of an agent of our own.
        given: names of its options that were given.
        gpus: of this node.
        lines: shows the progress.
        place: where the runs are stored, in words; empty: the collector's address says it.
        prepare: prepares the node for a run.

    Returns:
        Whether the collector has the samples of an agent of our own, and whether a planned look ended it.

    An agent that lasts as long as another command ends between two runs, when that command has no run left.
    """

    def submit(spec: RunSpec) -> Iterator[RunUpdate]:
        with contextlib.ExitStack() as notice:
            notice.enter_context(waiting_for("gpuagent", f"{PLANNING}; or another program that this node runs first"))
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
            return not agent.left_behind(), conductor.has_stopped
        except AgentEndedError:
            if len(journal.done) == made_before:
                raise
            made_before = len(journal.done)
            lines.note("the agent on this node has ended; another one makes the remaining runs")
    return True, False
