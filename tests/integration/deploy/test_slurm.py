"""Jobs of a real Slurm with an agent beside them."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.containers import Runtime
from tests.support.programs import found
from tests.support.servers import BIN, LIMIT_SECONDS, ForkingNode, Node, until
from tests.support.slurm import slurm

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parents[3] / "deploy/slurm"

JOB = """#!/bin/bash
set -euo pipefail
trap 'echo its own trap' EXIT
source {scripts}/gpuagent-job.sh
{body}
"""
AGENTS_LISTEN = """
sleep 0 &
wait
until [ "$(find "$GPUAGENT_RUNTIME_DIR" -name '*.sock' 2>/dev/null | wc -l)" = {agents} ]; do sleep 0.1; done
"""
EACH_SLURM_NODE_A_NODE = """#!/bin/bash
# All of the test's Slurm nodes are one machine.
export GPUAGENT_RUNTIME_DIR="$GPUAGENT_RUNTIME_DIR/$SLURMD_NODENAME"
exec {gpuagent} "$@" --node-id "$SLURMD_NODENAME"
"""

NOBODY = {"GPUAGENT_COLLECTOR": "127.0.0.1:1", "GPUAGENT_DELIVER_WITHIN": ""}


class Cluster:
    """Slurm with a collector; its jobs run in the node's folder."""

    def __init__(self, node: Node, runtime: Runtime) -> None:
        self.node = node
        self.folder = node.folder
        own = {"GPUAGENT_PROGRAM": str(BIN / "gpuagent"), "GPUAGENT_DELIVER_WITHIN": "60"}
        self.environment = {**node.environment, **runtime.variables, **own}

    def ask(self, *command: str) -> str:
        words = [found(command[0]), *command[1:]]
        place: dict[str, Any] = {"env": self.environment, "cwd": self.folder, "timeout": LIMIT_SECONDS}
        done: subprocess.CompletedProcess[str] = subprocess.run(
            words, **place, capture_output=True, text=True, check=True
        )
        return done.stdout

    def submit(self, script: str, *options: str, **variables: str) -> str:
        (self.folder / "job").write_text(script)
        given = ",".join(["ALL", *(f"{name}={value}" for name, value in variables.items())])
        return self.ask("sbatch", "--parsable", "--output=out-%A", f"--export={given}", *options, "job").strip()

    def end(self, job: str) -> tuple[str, str]:
        """Wait for the job's end; return its exit code and signal as Slurm tells them, and its output."""
        until(lambda: not self.ask("squeue", "--noheader").strip(), "the job's end")
        told = dict(word.split("=", 1) for word in self.ask("scontrol", "show", "job", job).split() if "=" in word)
        return told["ExitCode"], (self.folder / f"out-{job}").read_text()

    def sessions(self, columns: str) -> list[dict[str, str]]:
        """Return of each session that has samples what labels say, by time."""
        labels = ", ".join(f"labels->>'slurm_{column}' AS {column}" for column in columns.split())
        sampled = "session_id IN (SELECT session_id FROM host_samples)"
        sql = f"SELECT {labels} FROM sessions WHERE {sampled} ORDER BY started_at"
        rows: list[dict[str, str]] = json.loads(self.node.collector("query", "sql", sql, "--json").stdout)
        return rows


def leftovers(cluster: Cluster) -> list[str]:
    """Return the agents that run on, and the folders of jobs that are left."""
    agents = [str(process.pid) for process in psutil.process_iter() if _is_agent_of(cluster, process)]
    return [*agents, *map(str, cluster.folder.glob("job-*"))]


def _is_agent_of(cluster: Cluster, process: psutil.Process) -> bool:
    try:
        spool = process.environ().get("GPUAGENT_SPOOL_DIR", "")
        return process.cmdline()[2:3] == ["start"] and str(cluster.folder) in spool
    except psutil.Error:
        return False


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with slurm(more_nodes=["second"]) as runtime, ForkingNode(tmp_path_factory.mktemp("cluster")) as node:
        node.serve()
        yield Cluster(node, runtime)


def write_program(cluster: Cluster, name: str, gpuagent: str) -> Path:
    program = cluster.folder / name
    program.write_text(EACH_SLURM_NODE_A_NODE.format(gpuagent=gpuagent))
    program.chmod(0o755)
    return program


def job(body: str) -> str:
    return JOB.format(scripts=SCRIPTS, body=body)


def test_one_line_gives_a_job_an_agent_on_each_of_its_nodes_and_changes_nothing_else(cluster: Cluster) -> None:
    program = write_program(cluster, "agent", str(BIN / "gpuagent"))
    script = job(AGENTS_LISTEN.format(agents=2) + "echo trained; exit 7")
    number = cluster.submit(script, "--nodes=2", "--ntasks-per-node=2", GPUAGENT_PROGRAM=str(program))
    assert cluster.end(number) == ("7:0", "trained\nits own trap\n")
    rows = [row for row in cluster.sessions("job_id job_nodelist job_user") if row["job_id"] == number]
    assert len(rows) == 2
    assert "second" in rows[0]["job_nodelist"]
    assert rows[0]["job_user"]
    assert leftovers(cluster) == []


def test_a_step_on_two_nodes_is_one_run_and_the_next_step_another(cluster: Cluster) -> None:
    own = 'GPUAGENT_SPOOL_DIR="$GPUAGENT_SPOOL_DIR/$SLURMD_NODENAME" GPUAGENT_NODE_ID="$SLURMD_NODENAME"'
    program = write_program(cluster, "part", f"env {own} {BIN}/gpuagent")
    step = f'srun {program} run --nodes 2 -- sh -c "exit 0"'
    number = cluster.submit(f"#!/bin/bash\n{step}\n{step}\n", "--nodes=2", "--ntasks-per-node=1")
    code, said = cluster.end(number)
    assert code == "0:0", said
    sql = f"""SELECT runs.status, runs.nodes FROM runs JOIN sessions USING (session_id)
        WHERE runs.workload = 'exit' AND (sessions.labels->>'slurm_job_id') = '{number}'"""
    told = cluster.node.collector("query", "sql", sql, "--json")
    assert json.loads(told.stdout) == [{"status": "succeeded", "nodes": 2}] * 2


def test_a_cancelled_job_leaves_no_agent_and_what_its_agent_measured_and_ran_is_stored(cluster: Cluster) -> None:
    body = f"{BIN}/gpuagent run --label of=job -- true; echo began; sleep 600"
    number = cluster.submit(job(AGENTS_LISTEN.format(agents=1) + body), "--nodes=1")
    output = cluster.folder / f"out-{number}"
    until(lambda: output.exists() and "began" in output.read_text(), "the job's first line")
    cluster.ask("scancel", number)
    code, said = cluster.end(number)
    # The signal ends the script itself, or first the program that it waits for.
    assert code in ("0:15", "143:0")
    assert "STEP" not in said
    sql = "SELECT s.labels->>'slurm_job_id' AS job_id FROM runs r JOIN sessions s USING (session_id)"
    told = cluster.node.collector("query", "sql", f"{sql} WHERE r.labels->>'of' = 'job'", "--json")
    assert json.loads(told.stdout) == [{"job_id": number}]
    assert leftovers(cluster) == []


def test_what_a_job_could_not_deliver_a_later_one_delivers(cluster: Cluster) -> None:
    body = AGENTS_LISTEN.format(agents=1) + "sleep 0.3"
    array = cluster.submit(job(body), "--nodes=1", "--array=3", **NOBODY)
    assert cluster.end(array) == ("0:0", "its own trap\n")
    before = cluster.sessions("array_job_id array_task_id")
    cluster.end(cluster.submit(job(body), "--nodes=1"))
    now = cluster.sessions("array_job_id array_task_id")
    expected = {"array_job_id": array, "array_task_id": "3"}
    assert (expected in before, expected in now) == (False, True)


def test_an_agent_that_cannot_start_costs_the_job_one_line(cluster: Cluster) -> None:
    number = cluster.submit(job("sleep 0.5"), "--nodes=1", GPUAGENT_PROGRAM="/no/such/gpuagent")
    code, output = cluster.end(number)
    said, *others = output.splitlines()
    assert said.startswith("gpuagent: no telemetry")
    assert said.endswith("file or directory")
    assert (code, others) == ("0:0", ["its own trap"])


@pytest.mark.needs("dash")
def test_a_shell_that_cannot_tell_where_the_script_lies_goes_on_without(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "1"}
    command = ["dash", "-euc", f". {SCRIPTS}/gpuagent-job.sh; echo goes on"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "goes on\n"
    assert "set GPUAGENT_SLURM_DIR to the folder" in done.stderr


def test_prolog_and_epilog_give_every_job_an_agent(cluster: Cluster) -> None:
    scripts = Path(shutil.copytree(SCRIPTS, cluster.folder / "slurm"))
    names = ("COLLECTOR", "TOKEN_FILE", "SPOOL_DIR", "RUNTIME_DIR", "PROGRAM")
    told = {f"GPUAGENT_{name}": cluster.environment[f"GPUAGENT_{name}"] for name in names}
    told["GPUAGENT_USER"] = psutil.Process().username()
    told["GPUAGENT_PID_DIR"] = str(cluster.folder / "agents")
    (scripts / "gpuagent.env").write_text("".join(f"{name}={value}\n" for name, value in told.items()))
    listens = f"{cluster.folder}/job-$SLURM_JOB_ID/*.sock"
    script = f"#!/bin/bash\nuntil ls {listens} >/dev/null 2>&1; do sleep 0.1; done; sleep 0.3; exit 5"
    with configured(cluster, f"Prolog={scripts}/prolog.sh", f"Epilog={scripts}/epilog.sh", "PrologFlags=Alloc"):
        number = cluster.submit(script, f"--nodelist={os.uname().nodename.partition('.')[0]}")
        assert cluster.end(number) == ("5:0", "")
    (row,) = [row for row in cluster.sessions("job_id job_nodelist") if row["job_id"] == number]
    assert row["job_nodelist"] == os.uname().nodename.partition(".")[0]
    assert leftovers(cluster) == []
    assert not list((cluster.folder / "agents").iterdir())


@pytest.fixture
def watched(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster whose node has an agent that no job started."""
    agent = cluster.node.start_agent("--owners", "full")
    yield cluster
    cluster.node.stop(agent)


def seen(cluster: Cluster, number: str) -> list[dict[str, Any]]:
    """Return what the store has of a job, once its end is there."""
    sql = f"""SELECT job, arg_max(title, time) AS title, max(account) AS account, max(held_cores) AS held_cores,
        max(cpu_seconds) AS cpu_seconds, max(epoch(ended_at - started_at)) AS seconds,
        count(DISTINCT session_id) AS agents FROM owners WHERE number = '{number}' OR job LIKE '{number}@_%' ESCAPE '@'
        GROUP BY job HAVING max(ended_at) IS NOT NULL ORDER BY job"""
    told = cluster.node.collector("query", "sql", sql, "--json")
    rows: list[dict[str, Any]] = json.loads(told.stdout)
    return rows


def test_jobs_that_nobody_launched_through_us_are_jobs_too(watched: Cluster) -> None:
    options = ("--nodes=1", "--job-name=burn", "--account=vision")
    burn = watched.submit("#!/bin/bash\ntimeout 6 sha256sum /dev/zero\nexit 0\n", *options)
    watched.end(burn)
    (job,) = until(lambda: seen(watched, burn), "the job's end in the store")
    assert (job["job"], job["title"], job["account"]) == (burn, "burn", "vision")
    assert job["held_cores"] == os.cpu_count()
    assert 0 < job["cpu_seconds"] <= job["seconds"]
    assert job["seconds"] >= 6
    shown = json.loads(watched.node.collector("job", burn, "--json").stdout)
    assert (shown["job"], shown["state"], shown["parts"][0]["node"]) == (burn, "ended", os.uname().nodename)


def test_the_tasks_of_an_array_are_jobs_of_their_own_and_short_ones_count(watched: Cluster) -> None:
    array = watched.submit("#!/bin/bash\nsleep 1.5\n", "--nodes=1", "--array=3-4")
    watched.end(array)
    until(lambda: len(seen(watched, array)) == 2, "both tasks' ends in the store")
    assert [job["job"] for job in seen(watched, array)] == [f"{array}_3", f"{array}_4"]


def test_a_job_has_its_steps_as_slurm_numbers_them(watched: Cluster) -> None:
    burn = 'sh -c "timeout 4 sha256sum /dev/zero; exit 0"'
    body = f"srun --ntasks=1 {burn}\nsrun --ntasks=1 sleep 2\nsleep 1.5\n"
    number = watched.submit(f"#!/bin/bash\n{body}", "--nodes=1")
    watched.end(number)
    until(lambda: seen(watched, number), "the job's end in the store")
    shown = json.loads(watched.node.collector("job", number, "--json").stdout)
    steps = {step["step"]: step for step in shown["steps"]}
    assert set(steps) == {f"{number}.batch", f"{number}.0", f"{number}.1"}
    assert all(step["ended_at"] for step in steps.values())
    first, second, batch = (steps[f"{number}.{name}"] for name in ("0", "1", "batch"))
    # An end is seen late, where the next step begins in between.
    assert batch["started_at"] <= first["started_at"] < second["started_at"]
    assert first["ended_at"] < second["ended_at"] <= batch["ended_at"]
    assert first["cpu_seconds"] > second["cpu_seconds"]
    assert first["seconds"] >= 4
    assert sum(step["cpu_seconds"] for step in steps.values()) <= shown["cpu_seconds"] + 0.1


def test_a_job_goes_on_when_the_agent_is_started_anew_and_when_it_is_requeued(cluster: Cluster) -> None:
    agent = cluster.node.start_agent()
    script = "#!/bin/bash\nuntil [ -e go ]; do sleep 0.2; done\n"
    number = cluster.submit(script, "--nodes=1")
    counted = f"owners WHERE number = '{number}'"

    def count(what: str, rest: str = "") -> int:
        return int(cluster.node.ask(f"SELECT count(DISTINCT {what}) AS n FROM {counted} {rest}")[0]["n"])

    until(lambda: count("session_id") == 1, "the job")
    cluster.node.stop(agent)
    agent = cluster.node.start_agent()
    until(lambda: count("session_id") == 2, "the job, seen by the next agent")
    assert count("owner_id") == 1
    cluster.ask("scontrol", "requeue", number)
    until(lambda: count("owner_id", "AND ended_at IS NOT NULL") == 1, "its end")
    cluster.ask("scontrol", "update", f"JobId={number}", "StartTime=now")
    until(lambda: count("owner_id") == 2, "its second life")
    (cluster.folder / "go").touch()
    cluster.end(number)
    until(lambda: count("owner_id", "AND ended_at IS NOT NULL") == 2, "both ends")
    cluster.node.stop(agent)
    listed = json.loads(cluster.node.collector("jobs", "--json").stdout)["jobs"]
    assert [job["state"] for job in listed if job["job"] == number] == ["ended"]


@contextmanager
def configured(cluster: Cluster, *lines: str) -> Iterator[None]:
    """Have Slurm heed more lines of slurm.conf for a while."""
    path = Path(cluster.environment["SLURM_CONF"])
    before = path.read_text()
    path.write_text("\n".join([before, *lines, ""]))
    try:
        cluster.ask("scontrol", "reconfigure")
        yield
    finally:
        path.write_text(before)
        cluster.ask("scontrol", "reconfigure")
