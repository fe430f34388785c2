"""Slurm on this one machine, private to the tests: its controller, its daemon, and munge for their credentials."""

import os
import platform
import secrets
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.containers import Runtime, answers, found, short_folder, unavailable
from tests.support.servers import until

_CONFIGURATION = """
ClusterName=test
SlurmctldHost={node}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthInfo=socket={folder}/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
NodeName={node} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes={node} Default=YES State=UP
"""


@contextmanager
def slurm() -> Iterator[Runtime]:
    """Start Slurm with this machine as its only node."""
    with short_folder() as folder, ExitStack() as daemons:
        configuration = _configure(folder)
        _start(daemons, folder, _munge(folder))
        until((folder / "munge").exists, "munge's socket")
        for daemon in ("slurmctld", "slurmd"):
            _start(daemons, folder, [found(daemon), "-D", "-f", str(configuration)])
        client = ["env", f"SLURM_CONF={configuration}"]
        try:
            until(lambda: answers([*client, found("srun"), "--immediate=1", "true"]), "Slurm's node")
        except AssertionError as error:
            unavailable(str(error))
        yield Runtime(
            environment="slurm",
            variables={"SLURM_CONF": str(configuration)},
            list_containers=[*client, "squeue", "--noheader", "--format=%j"],
        )


def _configure(folder: Path) -> Path:
    folder.chmod(0o755)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "key").write_bytes(secrets.token_bytes(128))
    (folder / "key").chmod(0o600)
    text = _CONFIGURATION.format(
        folder=folder,
        node=platform.node().partition(".")[0],
        cpus=os.cpu_count(),
        user=os.environ.get("USER") or "root",
        ports=_free_ports(),
    )
    path = folder / "slurm.conf"
    path.write_text(text)
    return path


def _munge(folder: Path) -> Sequence[str]:
    files = {
        "key-file": "key",
        "socket": "munge",
        "pid-file": "munge.pid",
        "log-file": "munge.log",
        "seed-file": "seed",
    }
    options = [f"--{option}={folder}/{name}" for option, name in files.items()]
    return [found("munged"), "--foreground", "--force", *options]


def _start(daemons: ExitStack, folder: Path, command: Sequence[str]) -> None:
    log = daemons.enter_context((folder / f"{Path(command[0]).name}.log").open("w"))
    process = subprocess.Popen(command, stdout=log, stderr=log)
    daemons.callback(process.wait)
    daemons.callback(process.terminate)


def _free_ports() -> list[int]:
    with socket.socket() as one, socket.socket() as other:
        for one_socket in (one, other):
            one_socket.bind(("127.0.0.1", 0))
        return [one.getsockname()[1], other.getsockname()[1]]
