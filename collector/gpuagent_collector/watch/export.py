"""A snapshot for programs."""

import json
from dataclasses import asdict
from typing import Any

from gpuagent_collector.output.values import as_json
from gpuagent_collector.watch.snapshot import Snapshot


def to_json(snapshot: Snapshot) -> str:
    """Return everything that was read, as one JSON object; keys beyond 2^53 - 1 are strings."""
    fields: dict[str, Any] = asdict(snapshot) | {"taken_at": f"{snapshot.taken_at.isoformat()}Z"}
    return json.dumps(json.loads(as_json(fields)), indent=2)
