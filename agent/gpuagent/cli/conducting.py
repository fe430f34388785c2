"""The runs of an experiment, made by the node's agent or one of our own, and continued where they were interrupted."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from gpuagent.agent_config import AgentConfig
from gpuagent.cli.experiment_answer import await_delivery, is_narrow
from gpuagent.cli.node_agent import PLANNING, NodeAgent, node_agent
from gpuagent.cli.run_lines import RunLines
from gpuagent.errors import AgentEndedError
from gpuagent.experiment import plan
from gpuagent.experiment.conduct import Conductor, Journal
from gpuagent.experiment.file import Experiment
from gpuagent.experiment.gpus import NodeGpus
from gpuagent.experiment.plan import Trial
from gpuagent_common.text import write_duration
from gpuagent_common.waiting import waiting_for
from gpuagent_proto.v1.run_pb2 import RunSpec, RunUpdate


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """The runs to make.

    Attributes:
        lacking: keys of cells that this node lacks something for.
        config, given: of an agent of our own, and the names of its options that were given.
        place: where the runs are stored, in words; empty: its collector's address says it.
        prepare: prepares the node for a run.
    """

    experiment: Experiment
    journal: Journal
    lacking: Mapping[str, str]
    config: AgentConfig
    given: Sequence[str]
    gpus: NodeGpus
    lines: RunLines
    place: str = ""
    prepare: Callable[[Trial], None] = lambda _trial: None

    def make(self) -> tuple[bool, bool]:
        """Make the runs that are left; begin again if another's agent ends first, unless no run was made since then.

        Returns:
            Whether the collector has the samples of an agent of our own, and whether a planned look ended it.

        An agent that lasts as long as another command ends between two runs, when that command has no run left.
        """
        made_before = -1
        while True:
            try:
                return self._make()
            except AgentEndedError:
                if len(self.journal.done) == made_before:
                    raise
                made_before = len(self.journal.done)
                self.lines.note("the agent on this node has ended; another one makes the remaining runs")

    def _make(self) -> tuple[bool, bool]:
        experiment, journal = self.experiment, self.journal
        every = plan.all_trials(experiment, self.lacking)
        left = journal.left(every)
        if not left:
            return True, False
        working_directory = str(Path.cwd())
        first = plan.spec(left[0], experiment, working_directory)
        with node_agent(self.config, self.given, first, place=self.place) as agent, contextlib.closing(self.lines):
            self.lines.read_gpus = agent.read_gpus
            conductor = Conductor(
                experiment=experiment,
                journal=journal,
                gpus=self.gpus,
                submit=partial(self._submit, agent),
                observer=self.lines,
                working_directory=working_directory,
                lacking=self.lacking,
                prepare=self.prepare,
                is_narrow=lambda: is_narrow(
                    experiment, self.config, agent.waiting, made=sum(done.repeat > 0 for done in journal.done)
                ),
            )
            began = time.monotonic()
            try:
                conductor.run()
            except KeyboardInterrupt:
                self.lines.close()
                made = f"{self.lines.made} of {self.lines.planned} runs are stored"
                after = write_duration(time.monotonic() - began)
                self.lines.note(f"cancelled after {after}; {made}; run it again to resume")
                raise click.exceptions.Exit(130) from None
            await_delivery(agent.waiting)
        return not agent.left_behind(), conductor.has_stopped

    def _submit(self, agent: NodeAgent, spec: RunSpec) -> Iterator[RunUpdate]:
        with contextlib.ExitStack() as notice:
            notice.enter_context(waiting_for("gpuagent", f"{PLANNING}; or another program that this node runs first"))
            for update in agent.submit(spec):
                if update.status != "queued" or update.reason:
                    notice.close()
                self.lines.follow(update)
                yield update
