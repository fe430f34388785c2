"""What agents count of jobs beside the accounting of a real Slurm."""

import subprocess
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.integration.deploy.test_slurm import SCRIPTS, Cluster
from tests.support.servers import BIN, ForkingNode, until
from tests.support.slurm import slurm

pytestmark = pytest.mark.slow

# The agent looks once a second, and later on a busy machine: what a step uses after the last look it misses.
MISSED_SECONDS = 1.0

# Work, after which it waits until the agent has looked at it; once without.
BURN = "(ulimit -t 3; sha256sum /dev/zero); mark=$(mktemp burnt-XXXXXXXX); while [ -e $mark ]; do sleep 0.1; done"
SHORT = "timeout 1 sha256sum /dev/zero; true"
# Options of sbatch, and the body of the script.
JOBS = {
    "plain": (("--nodes=1",), BURN),
    "array": (("--nodes=1", "--array=3-4"), BURN),
    "two nodes": (("--nodes=2", "--ntasks-per-node=1"), f"srun sh -c '{BURN}'"),
    "steps": (("--nodes=1",), f"srun sh -c '{BURN}'; srun --ntasks=1 sh -c '{BURN}'"),
    "short": (("--nodes=1",), SHORT),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with (
        slurm(more_nodes=["second"], accounts=True) as runtime,
        ForkingNode(tmp_path_factory.mktemp("cluster")) as node,
    ):
        node.serve()
        yield Cluster(node, runtime)


@pytest.fixture
def agent(cluster: Cluster) -> Iterator["subprocess.Popen[str]"]:
    agent = cluster.node.start_agent("--owners", "full")
    yield agent
    cluster.node.stop(agent)


def until_seen(cluster: Cluster, condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition; meanwhile, let work go on once samples are stored that are newer than it."""

    def has_come() -> bool:
        (row,) = cluster.node.ask("SELECT epoch(max(time)) AS newest FROM owner_samples")
        for mark in cluster.folder.glob("burnt-*"):
            if row["newest"] is not None and mark.stat().st_mtime < row["newest"]:
                mark.unlink()
        return condition()

    until(has_come, what)


def run_jobs(cluster: Cluster) -> dict[str, str]:
    """Run all jobs; return their numbers."""
    numbers = {name: cluster.submit(f"#!/bin/bash\n{body}\n", *options) for name, (options, body) in JOBS.items()}
    until_seen(cluster, lambda: not cluster.ask("squeue", "--noheader").strip(), "the jobs' end")
    return numbers


def read_seconds(time: str) -> float:
    """Return seconds of sacct's "[[days-]hours:]minutes:seconds"; nought is written with hours."""
    days, _, clock = time.rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + 86_400 * int(days or 0)


def read_accounts(cluster: Cluster, number: str) -> tuple[Counter[str], set[str]]:
    """Return the CPU time of each job of this number or array, in seconds over all its lives, and its states."""
    used: Counter[str] = Counter()
    states = set()
    options = ("--duplicates", "--noheader", "--parsable2", "--format=JobID,TotalCPU,State", "--jobs", number)
    for line in cluster.ask("sacct", *options).splitlines():
        job, cpu, state = line.split("|")
        if "." not in job:
            used[job] += read_seconds(cpu)  # type: ignore[assignment]
            states.add(state)
    return used, states


def read_observed(cluster: Cluster, number: str) -> Counter[str]:
    """Return the same as agents saw it."""
    of_number = f"number = '{number}' OR job LIKE '{number}@_%' ESCAPE '@'"
    lives = f"SELECT job, owner_id, max(cpu_seconds) AS seconds FROM owners WHERE {of_number} GROUP BY ALL"
    rows = cluster.node.ask(f"SELECT job, sum(seconds) AS seconds FROM ({lives}) GROUP BY job")
    return Counter({row["job"]: row["seconds"] for row in rows})


def assert_agrees(cluster: Cluster, number: str, *, steps: int = 1) -> None:
    def has_ended() -> bool:
        (row,) = cluster.node.ask(
            "SELECT count(*) AS lives, count(ended_at) AS ends FROM (SELECT max(ended_at) AS ended_at FROM owners "
            f"WHERE number = '{number}' OR job LIKE '{number}@_%' ESCAPE '@' GROUP BY owner_id)"
        )
        return 0 < row["lives"] == row["ends"] and "COMPLETED" in read_accounts(cluster, number)[1]

    until(has_ended, "the job's end in both accounts")
    accounts, observed = read_accounts(cluster, number)[0], read_observed(cluster, number)
    assert dict(observed) == pytest.approx(dict(accounts), rel=0.01, abs=MISSED_SECONDS * steps)


@pytest.mark.usefixtures("agent")
def test_cpu_time_is_that_of_slurms_own_accounting(cluster: Cluster) -> None:
    for name, number in run_jobs(cluster).items():
        assert_agrees(cluster, number, steps=2 if name == "steps" else 1)
    # The last one, whose summary an example script writes beside Slurm's own.
    program = {"COLLECTOR_PROGRAM": str(BIN / "collector")}
    subprocess.run([SCRIPTS / "admin-comment.sh", number], env=cluster.environment | program, check=True)
    (comment,) = cluster.ask("sacct", "-XnP", "--format=AdminComment", "--jobs", number).splitlines()
    told = dict(word.split("=") for word in comment.removeprefix("gpuagent: ").split())
    assert told["state"] == "ended"
    assert float(told["cpu_seconds"]) == pytest.approx(sum(read_observed(cluster, number).values()), rel=0.01)


def test_cpu_time_agrees_over_a_restart_of_the_agent_and_a_requeue(cluster: Cluster) -> None:
    agent = cluster.node.start_agent("--owners", "full")
    wait = "until [ -e {} ]; do sleep 0.3; done"
    script = f"#!/bin/bash\n{BURN}; touch burnt\n{wait.format('restarted')}\n{BURN}; touch again\n{wait.format('go')}\n"
    number = cluster.submit(script, "--nodes=1")
    until_seen(cluster, (cluster.folder / "burnt").exists, "work under the first agent")
    cluster.node.stop(agent)
    agent = cluster.node.start_agent("--owners", "full")
    (cluster.folder / "restarted").touch()
    until_seen(cluster, (cluster.folder / "again").exists, "work under the second agent")
    cluster.ask("scontrol", "requeue", number)
    (cluster.folder / "go").touch()
    lives = f"SELECT count(DISTINCT owner_id) AS n FROM owners WHERE number = '{number}' AND ended_at IS NOT NULL"
    until_seen(cluster, lambda: cluster.node.ask(lives)[0]["n"] == 1, "the end of its first life")
    cluster.ask("scontrol", "update", f"JobId={number}", "StartTime=now")
    until_seen(cluster, lambda: cluster.node.ask(lives)[0]["n"] == 2, "the end of its second life")
    assert_agrees(cluster, number)
    cluster.node.stop(agent)
