"""Pods of the rendered manifests as processes: their arguments and variables, folders for volumes."""

import re
import sqlite3
import subprocess
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.manifests import variables
from tests.support.servers import Node

# What the downward API and the ConfigMap give.
FROM_THE_CLUSTER = {
    "POD_NAME": "gpuagent-agent-x7k2p",
    "POD_NAMESPACE": "gpuagent",
    "POD_UID": "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d",
    "GPUAGENT_NODE_NAME": "gke-pool-1-abcd",
    "OPENSHIFT_NODE_NAME": "gke-pool-1-abcd",
    "GPUAGENT_PLATFORM": "gke-l4",
}

# 0.0.0.0 would be a pod's own; here it would be this machine's.
LOOPBACK = {
    "--listen=0.0.0.0:50051": "--listen=127.0.0.1:0",
    "--http=0.0.0.0:9464": "--http=127.0.0.1:0",
    "--metrics=0.0.0.0:9465": "--metrics=127.0.0.1:0",
}

# Where volumes are mounted → folders in their place.
FOLDERS = {
    "/var/lib/gpuagent": "state",
    "/etc/gpuagent-owner": "owner",
    "/etc/gpuagent-client": "client",
    "/etc/gpuagent": "secrets",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A container of a rendered manifest, run as a process with folders in the place of volumes.

    Attributes:
        folder: that the volumes' folders are in.
        replacements: what a cluster would tell, by variable; and words that cannot be the same outside of a pod.
        is_contained: whether it runs where the volumes are mounted, so that paths are as they stand in the manifest.
    """

    spec: Mapping[str, Any]
    folder: Path
    replacements: Mapping[str, str] = field(default_factory=dict)
    is_contained: bool = False

    @property
    def environment(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, value in variables(self.spec).items():
            known = {**FROM_THE_CLUSTER, **self.replacements}
            found[name] = known[name] if value is None else self.local(value, found)
        return found

    @property
    def arguments(self) -> list[str]:
        return [self.local(word, self.environment) for word in self.spec["args"]]

    def local(self, text: str, values: Mapping[str, str]) -> str:
        """Return a word with variables and paths as they are here."""
        expanded = re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], text)
        for path, instead in () if self.is_contained else FOLDERS.items():
            expanded = expanded.replace(path, str(self.folder / instead))
        return self.replacements.get(expanded, expanded)

    def start(self, node: Node, program: str, *more: str, log: str) -> "subprocess.Popen[str]":
        """Start it, with more arguments than it has in its pod; commands in `node` have its variables from then on."""
        (self.folder / "state").mkdir(parents=True)
        node.environment |= self.environment
        return node.start(program, *self.arguments, *more, log=log)

    def first_waiting_message(self) -> int:
        """Return the number of the first message that waits in an agent's spool; 0: none does.

        It grows when the collector has said that it stored one.
        """
        file = self.folder / "state/spool/spool.sqlite"
        if not file.exists():
            return 0
        with closing(sqlite3.connect(file, timeout=10)) as spool:
            if not spool.execute("SELECT 1 FROM sqlite_master WHERE name = 'messages'").fetchone():
                return 0
            (number,) = spool.execute("SELECT min(number) FROM messages").fetchone()
        return number or 0
