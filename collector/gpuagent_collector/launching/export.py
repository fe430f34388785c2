"""What came of a launch, for programs."""

import json
from collections.abc import Sequence

from gpuagent_collector.launching.launch import Launched
from gpuagent_collector.launching.progress import Progress


def to_json(launched: Launched, runs: Sequence[Progress]) -> str:
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
        "refusals": [
            {"node": agent.node, "platform": agent.platform, "reason": reason} for agent, reason in launched.refusals
        ],
    }
    return json.dumps(document, indent=2)
