"""The RunSpec of a command line; of a run on several nodes, its job and the meeting point of its ranks."""

import hashlib
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuagent.environments import split_name
from gpuagent_common.errors import MisuseError
from gpuagent_common.run_spec import make_spec
from gpuagent_proto.v1.run_pb2 import RunSpec

# Ports of meeting points: below those that Linux hands out by itself.
_FIRST_PORT, _PORTS = 20_000, 10_000

_RENDEZVOUS = "rendezvous"

# Finds the addresses of a host, or raises OSError; the second argument is the port, which does not matter.
Resolve = Callable[[str, None], object]


def run_spec(
    workload: str | None, program: Sequence[str], words: Sequence[str], labels: Mapping[str, str], **options: Any
) -> RunSpec:
    """Return the request of `run_options`, made here; the arguments are those of `make_spec`.

    Raises MisuseError: a word is no parameter, one is given twice, or a name or a limit is invalid.
    """
    spec = make_spec(workload, program, words, labels, **options)
    spec.environment, spec.image = split_name(options["environment"])
    # A container has the folder only for a program of the user's: a workload needs none there.
    if program or spec.environment == "bare":
        spec.working_directory = str(Path.cwd())
    if options["nodes"] > 1:
        join_nodes(spec, options["nodes"], options["job"], os.environ)
    return spec


def join_nodes(
    spec: RunSpec, nodes: int, job: str | None, environment: Mapping[str, str], resolve: Resolve = socket.getaddrinfo
) -> None:
    """Make `spec` a part of a run on several nodes.

    Args:
        spec: the request; a workload gets the meeting point of its ranks unless that is given.
        nodes: at least two.
        job: the secret that all nodes share; None: the step of Slurm.

    Raises:
        MisuseError: the name of the meeting point has no address here.
    """
    if "SLURM_STEP_ID" not in environment:
        step: str | None = None
    else:
        names = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
        step = " ".join(["slurm", *(environment.get(name) or "0" for name in names)])
    spec.nodes = nodes
    spec.job = job or step or ""
    if step and spec.workload and _RENDEZVOUS not in spec.parameters:
        spec.parameters[_RENDEZVOUS] = _meeting_point(step, environment, resolve)


def _meeting_point(step: str, environment: Mapping[str, str], resolve: Resolve) -> str:
    """Return the step's first node, and a port that other steps there are unlikely to use."""
    host = first_host(environment.get("SLURM_STEP_NODELIST", ""))
    try:
        resolve(host, None)
    except OSError as error:  # torchrun would look for it for ten minutes
        raise MisuseError(
            f"the ranks would meet on {host}, this step's first node, which has no address here ({error.strerror}); "
            "name a meeting point: --rendezvous HOST:PORT"
        ) from error
    offset = int.from_bytes(hashlib.sha256(step.encode()).digest()[:4], "big") % _PORTS
    return f"{host}:{_FIRST_PORT + offset}"


def first_host(hosts: str) -> str:
    """Return the first host of a list in Slurm's notation: n007 of n[007-010,12],other."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", hosts)
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first.group() if first else "")
