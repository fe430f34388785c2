"""Slurm on this one machine, private to the tests: its controller, its daemon, and munge for their credentials."""

import os
import platform
import secrets
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.containers import Runtime, answers, short_folder
from tests.support.programs import found, unavailable
from tests.support.servers import until

_CONFIGURATION = """
ClusterName=test
SlurmctldHost={node}(127.0.0.1)
SlurmctldPort={port}
AuthInfo=socket={folder}/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
FirstJobId={first_job}
JobAcctGatherType=jobacct_gather/linux
PartitionName=all Nodes=ALL Default=YES State=UP
"""

_ACCOUNTING = """
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={folder}/munge
"""
_DATABASE = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge
SlurmUser={user}
DbdHost=localhost
DbdPort={port}
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={storage_port}
StorageUser=root
StorageLoc=slurm
"""

# What Slurm knows of each node's memory: jobs that ask for more are refused.
MEMORY_MB = 256


@contextmanager
def slurm(*, more_nodes: Sequence[str] = (), settings: Sequence[str] = (), accounts: bool = False) -> Iterator[Runtime]:
    """Start Slurm with this machine as its node, and as `more_nodes` too; `settings` are lines for slurm.conf.

    With `accounts` it has a slurmdbd, so that `sacct` and `sacctmgr` work.
    """
    nodes = [platform.node().partition(".")[0], *more_nodes]
    with short_folder() as folder, ExitStack() as daemons:
        configuration = _configure(folder, nodes, settings)
        _start(daemons, folder, "munged", _munge(folder))
        until((folder / "munge").exists, "munge's socket")
        if accounts:
            _start_accounting(daemons, folder, configuration)
        _start(daemons, folder, "slurmctld", [found("slurmctld"), "-D", "-f", str(configuration)])
        for node in nodes:
            _start(daemons, folder, f"slurmd-{node}", [found("slurmd"), "-D", "-N", node, "-f", str(configuration)])
        client = ["env", f"SLURM_CONF={configuration}"]
        try:
            task_a_node = [found("srun"), "--immediate=1", f"--nodes={len(nodes)}", "true"]
            until(lambda: answers([*client, *task_a_node]), "Slurm's nodes")
        except AssertionError as error:
            unavailable(str(error))
        yield Runtime(
            environment="slurm",
            variables={"SLURM_CONF": str(configuration)},
            list_containers=[*client, "squeue", "--noheader", "--format=%j"],
        )


def _configure(folder: Path, nodes: Sequence[str], settings: Sequence[str]) -> Path:
    folder.chmod(0o755)
    (folder / "state").mkdir()
    (folder / "key").write_bytes(secrets.token_bytes(128))
    (folder / "key").chmod(0o600)
    ports = _free_ports(1 + len(nodes))
    names = {"folder": folder, "node": nodes[0], "user": os.environ.get("USER") or "root"}
    # An agent sees the jobs of all clusters of the tests on its node, so each has numbers of its own.
    port = ports.pop()
    text = _CONFIGURATION.format(**names, port=port, first_job=1000 * port)
    for node, port in zip(nodes, ports, strict=True):
        has = f"CPUs={os.cpu_count()} RealMemory={MEMORY_MB} State=UNKNOWN"
        text += f"NodeName={node} NodeAddr=127.0.0.1 Port={port} {has}\n"
    # Nothing here uses control groups, but the daemon loads a plug-in for them; that of v2 needs systemd.
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    path = folder / "slurm.conf"
    path.write_text("\n".join([text, *settings, ""]))
    return path


def _start_accounting(daemons: ExitStack, folder: Path, configuration: Path) -> None:
    """Start MariaDB, and a slurmdbd that knows the cluster; Slurm's daemons find both in their configuration."""
    port, storage_port = _free_ports(2)
    data = folder / "mariadb"
    own = ["--no-defaults", f"--datadir={data}", "--user=root"]
    install = [found("mariadb-install-db"), *own, "--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run(install, check=True, capture_output=True)
    listens = ["--bind-address=127.0.0.1", f"--port={storage_port}", f"--socket={folder}/mariadb.sock"]
    quick = ["--skip-grant-tables", "--innodb-flush-log-at-trx-commit=0", f"--pid-file={folder}/mariadb.pid"]
    _start(daemons, folder, "mariadbd", [found("mariadbd"), *own, *listens, *quick])
    until((folder / "mariadb.sock").exists, "MariaDB's socket")
    database = folder / "slurmdbd.conf"
    user = os.environ.get("USER") or "root"
    database.write_text(_DATABASE.format(folder=folder, user=user, port=port, storage_port=storage_port))
    database.chmod(0o600)
    with configuration.open("a") as file:
        file.write(_ACCOUNTING.format(folder=folder, port=port))
    client = ["env", f"SLURM_CONF={configuration}"]
    _start(daemons, folder, "slurmdbd", [*client, found("slurmdbd"), "-D"])
    add = [*client, found("sacctmgr"), "--immediate", "add", "cluster", "test"]
    until(lambda: answers(add), "slurmdbd")


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


def _start(daemons: ExitStack, folder: Path, name: str, command: Sequence[str]) -> None:
    log = daemons.enter_context((folder / f"{name}.log").open("w"))
    process = subprocess.Popen(command, stdout=log, stderr=log)
    daemons.callback(process.wait)
    daemons.callback(process.terminate)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
