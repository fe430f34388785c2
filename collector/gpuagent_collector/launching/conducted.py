"""Follows an experiment on its agents to its end, whatever goes away in between."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from gpuagent_collector.launching.agents import Agent
from gpuagent_collector.output.human import age
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_proto.v1.run_pb2 import ExperimentState

_LOOK_SECONDS = 1.0

# How long nothing may be heard of an agent, or of the collector: agents are lost after two minutes.
_PATIENCE_SECONDS = 150.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OnAgent:
    """How an experiment stands on one agent, as it was last heard of."""

    agent: Agent
    state: ExperimentState

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is to come."""
        return self.state.status not in ("queued", "running")

    @property
    def has_succeeded(self) -> bool:
        """Whether every run is made, and all of them succeeded."""
        return self.state.status == "complete" and not self.state.failed_runs

    @property
    def made(self) -> str:
        """How many of its runs have ended."""
        return f"{self.state.ended_runs} of {self.state.planned_runs}"

    @property
    def line(self) -> str:
        """How it stands, in one line."""
        state = self.state
        failed = f", {state.failed_runs} failed" if state.failed_runs else ""
        line = f"{self.agent.node}: {state.status}, {self.made} runs made{failed}"
        if self.has_ended:
            return f"{line}: {state.reason}" if state.reason else line
        left = f", about {age(timedelta(seconds=state.left_seconds))} left" if state.HasField("left_seconds") else ""
        return f"{line}{left}; {state.doing}" if state.doing else f"{line}{left}"


class Lines:
    """Says a line whenever an experiment has come along on one of its agents."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self._said: dict[str, tuple[str, int, str]] = {}

    def update(self, launched: Sequence[OnAgent]) -> None:
        """Say what has changed."""
        for each in launched:
            state, session = each.state, each.agent.session_uuid
            now = (state.status, state.ended_runs, state.doing)
            is_between_runs = state.status == "running" and not state.doing
            if not is_between_runs and self._said.get(session) != now:
                self._said[session] = now
                self.say(each.line)


def follow(
    launched: Sequence[OnAgent],
    look: Callable[[], Mapping[str, ExperimentState]],
    lines: Lines,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Sequence[OnAgent]:
    """Say how an experiment comes along until it has ended on every agent; return how.

    Args:
        launched: the agents, and how it stood at first.
        look: returns how it stands on those that tell, by their sessions.
        lines: what says it.
        sleep: waits so many seconds.
        clock: tells seconds.

    Raises:
        MisuseError: the collector does not let us look.
    """
    heard = {each.agent.session_uuid: clock() for each in launched}
    is_away = False
    while True:
        try:
            states, was_away, is_away = look(), is_away, False
        except MisuseError:
            raise
        except GpuAgentError as error:
            states, was_away, is_away = {}, is_away, True
            if not was_away:
                lines.say(f"{error}; trying again")
        heard |= dict.fromkeys(states, clock())
        launched = [_now(each, states, clock() - heard[each.agent.session_uuid]) for each in launched]
        lines.update(launched)
        if all(each.has_ended for each in launched):
            return launched
        sleep(_LOOK_SECONDS)


def _now(each: OnAgent, states: Mapping[str, ExperimentState], silent_seconds: float) -> OnAgent:
    """Return how it stands on one agent; nothing is concluded from a short silence."""
    if each.has_ended:
        return each
    if state := states.get(each.agent.session_uuid):
        return replace(each, state=state)
    if silent_seconds < _PATIENCE_SECONDS:
        return each
    state = ExperimentState()
    state.CopyFrom(each.state)
    state.status, state.doing = "lost", ""
    state.reason = "its agent went away; launched again, the file goes on where it stopped"
    return replace(each, state=state)
