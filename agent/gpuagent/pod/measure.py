"""The first process of a pod that measures itself: an agent for one run.

`ld.so … python3 -I -S measure.py`, from the folder that `carry.py` filled. `settings/settings.json` in it has the run
and what the agent needs. The run's state is the pod's last message, for the machine that asked for the run.
"""

import sys
from pathlib import Path

# The packages lie beside this one; no site directory is read.
sys.path.insert(0, str(Path(__file__).parents[2]))

import json
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from gpuagent.agent import Agent
from gpuagent.agent_config import AgentConfig
from gpuagent.cli.follow import OutputCopy
from gpuagent.delivery.uplink import Delivery
from gpuagent.environments.environment import Ending, Job, Launch
from gpuagent.environments.support.common import Container
from gpuagent.environments.support.job_manifest import SCC_VARIABLE
from gpuagent.runs.elsewhere import SelfRecord
from gpuagent.runs.events import SHOWN_RESULTS, EventTailer
from gpuagent.runs.planning import read_plan
from gpuagent.runs.runner import has_ended
from gpuagent_common.cli import interrupt_on_signals
from gpuagent_common.connection import TlsFiles
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.limits import Limits
from gpuagent_proto.v1.run_pb2 import RunUpdate

_MESSAGE = Path("/dev/termination-log")
_MESSAGE_BYTES = 4000
_CANNOT_RUN = 125

# Of kernels with cgroup v1 and v2: how often the group ran out of memory and lost a process.
_OOM_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")


class InPod(Container):
    """The environment of a program beside this agent: it is in the pod already."""

    name = "kubernetes"

    def __init__(self, wait_until_stored: Callable[[], None]) -> None:
        self._wait_until_stored = wait_until_stored
        self._kills = _count_oom_kills()

    def check_limits(self, limits: Limits) -> None:
        """Accept what the cluster has set."""

    def launch(self, job: Job) -> Launch:
        """Return the program, once the collector has the request: what nobody could store must not begin."""
        self._wait_until_stored()
        return Launch(command=job.program, is_program=True)

    def launch_beside(self, job: Job) -> Launch:
        """Return the neighbour itself."""
        return Launch(command=job.program)

    def explain_own(self, ending: Ending) -> str | None:
        """Return what the kernel counted, or what the image lacks."""
        if _count_oom_kills() > self._kills:
            return f"{ending.memory_limit} ran out, and the kernel ended it"
        return super().explain_own(ending)


def main(folder: Path) -> int:
    """Make the run; return the program's exit code as a shell would."""
    interrupt_on_signals()
    if not os.environ.get(SCC_VARIABLE):
        os.environ.pop(SCC_VARIABLE, None)  # its name alone would mean OpenShift
    settings = json.loads((folder / "settings/settings.json").read_text())
    config = _config(folder, settings)
    agent = Agent(config)

    def wait_until_stored() -> None:
        if not agent.uplink.wait_until_delivered(Delivery(seconds=settings["deliver_seconds"], through_failures=True)):
            raise GpuAgentError(agent.uplink.last_error or f"the collector at {config.collector} takes nothing")
        _say(SelfRecord(node_uuid=agent.node_uuid, hostname=config.node_name, status="running"))

    plan = read_plan(settings["plan"], InPod(wait_until_stored))
    last = RunUpdate(status="failed", reason="it did not begin")
    copies: list[OutputCopy] = []
    try:
        with agent:
            try:
                for last in agent.runner.follow([plan]):
                    if last.status == "running":
                        copies.append(OutputCopy(Path(last.run_directory), None, quiet_stdout=False))
            except KeyboardInterrupt:
                # The agent records the end while it stops.
                last = RunUpdate(run_id=plan.run_id, status="cancelled", run_directory=last.run_directory)
    finally:
        for copy in copies:
            copy.finish()
    reason = last.reason or None
    if not has_ended(last):
        last.status, reason = "failed", agent.failure or "its agent ended early"
    _say(
        SelfRecord(
            node_uuid=agent.node_uuid,
            hostname=config.node_name,
            status=last.status,
            exit_code=last.exit_code if last.HasField("exit_code") else None,
            reason=reason,
            seconds=last.seconds if last.HasField("seconds") else None,
            undelivered=agent.undelivered + agent.lost,
            results=_results(plan.run_id, last.run_directory),
        )
    )
    if not last.HasField("exit_code"):
        return 0 if last.status == "succeeded" else _CANNOT_RUN
    return 128 - last.exit_code if last.exit_code < 0 else last.exit_code


def _config(folder: Path, settings: Mapping[str, Any]) -> AgentConfig:
    state = folder / "state"
    state.mkdir(mode=0o700, exist_ok=True)
    (folder / "home").mkdir(exist_ok=True)
    os.environ["GPUAGENT_RUNTIME_DIR"] = str(state / "run")
    given: dict[str, Path] = {}
    for name in ("token", "ca.crt", "client.crt", "client.key"):
        source = folder / "settings" / name
        if source.exists():
            given[name] = state / name
            given[name].touch(mode=0o600)
            shutil.copyfile(source, given[name])
    node, platform = os.environ["GPUAGENT_NODE_NAME"], settings["platform"]
    pod = {name.lower(): os.environ[name] for name in ("POD_NAME", "POD_NAMESPACE", "POD_UID")}
    labels = {"namespace": pod["pod_namespace"], "pod": pod["pod_name"], "pod_uid": pod["pod_uid"]}
    tls = TlsFiles(ca=given["ca.crt"], certificate=given.get("client.crt"), key=given.get("client.key"))
    return AgentConfig(
        collector=settings["collector"],
        token_file=given["token"],
        tls=tls if "ca.crt" in given else None,
        platform=platform,
        python=sys.executable,
        # Its own say where it is; those of an agent that launched it may have the same names.
        labels={**settings["labels"], **labels},
        rate_hz=settings["rate_hz"],
        spool=state / "spool",
        # As the node's agent names it, if there is one.
        node_id=f"{platform}/{node}",
        node_name=node,
        delivery=Delivery(seconds=settings["deliver_seconds"], through_failures=True),
        records_requests=False,
    )


def _results(run_id: str, directory: str) -> dict[str, tuple[float, str]]:
    if not directory:
        return {}
    digest = EventTailer(run_id, Path(directory)).read_all()
    numbers = ((name, digest.results.get(name)) for name in SHOWN_RESULTS)
    return {
        name: (float(value), digest.units.get(name, "")) for name, value in numbers if isinstance(value, int | float)
    }


_saying = threading.Lock()


def _say(record: SelfRecord) -> None:
    with _saying:
        text = json.dumps(asdict(record))
        if len(text) > _MESSAGE_BYTES:
            text = json.dumps({**asdict(record), "reason": (record.reason or "")[:500], "results": {}})
        _MESSAGE.write_text(text)


def _count_oom_kills() -> int:
    for path in map(Path, _OOM_COUNTERS):
        if path.exists():
            lines = (line.split() for line in path.read_text().splitlines())
            return sum(int(words[1]) for words in lines if words and words[0] == "oom_kill")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parents[3]))
