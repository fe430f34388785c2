"""What came of a launch, for programs."""

import json
from collections.abc import Sequence

from gpuagent_collector.launching.agents import Agent
from gpuagent_collector.launching.conducted import OnAgent
from gpuagent_collector.launching.progress import Progress

# Agents that took nothing, and why.
Refusals = Sequence[tuple[Agent, str]]


def to_json(runs: Sequence[Progress], refusals: Refusals) -> str:
    """Return the runs as they stand, and who refused."""
    document = {
        "runs": [
            {
                "run_id": run.run.run_id,
                "node": run.run.node,
                "platform": run.run.platform,
                "repeat": run.repeat,
                "status": run.status,
                "exit_code": run.exit_code,
                "reason": run.reason,
                "elapsed_seconds": run.elapsed_seconds,
            }
            for run in runs
        ],
        "refusals": _refusals(refusals),
    }
    return json.dumps(document, indent=2)


def experiment_to_json(name: str, launched: Sequence[OnAgent], refusals: Refusals, commands: Sequence[str]) -> str:
    """Return how an experiment stands on its agents, who refused it, and the commands that answer it."""
    document = {
        "experiment": name,
        "agents": [
            {
                "node": each.agent.node,
                "platform": each.agent.platform,
                "status": each.state.status,
                "reason": each.state.reason or None,
                "planned_runs": each.state.planned_runs,
                "ended_runs": each.state.ended_runs,
                "failed_runs": each.state.failed_runs,
            }
            for each in launched
        ],
        "refusals": _refusals(refusals),
        "answers": list(commands),
    }
    return json.dumps(document, indent=2)


def _refusals(refusals: Refusals) -> list[dict[str, str | None]]:
    return [{"node": agent.node, "platform": agent.platform, "reason": reason} for agent, reason in refusals]
