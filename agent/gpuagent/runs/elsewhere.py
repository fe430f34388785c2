"""Runs that measure and record themselves where this agent cannot follow: their ends as this machine sees them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpuagent import facts
from gpuagent.environments.kubernetes import read_learned, report_name
from gpuagent.environments.support.job_client import short_reason
from gpuagent_common.statuses import FINAL_STATUSES, RunStatus
from gpuagent_proto.v1.run_pb2 import RunUpdate


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfRecord:
    """The record of an agent that measures itself on its one run: the last message of its pod.

    Attributes:
        status: of the run: running, once the collector has stored the request; then the final one.
        exit_code: the program's; None: it has none.
        reason: why it did not succeed; None: it did, or runs.
        seconds: the duration of the run; None: it runs, or never began.
        undelivered: messages that the collector did not take.
        results: name → (value, unit) of `SHOWN_RESULTS`.
    """

    node_uuid: str
    hostname: str
    status: str
    exit_code: int | None = None
    reason: str | None = None
    seconds: float | None = None
    undelivered: int = 0
    results: Mapping[str, tuple[float, str]] = field(default_factory=dict)

    @property
    def has_ended(self) -> bool:
        """True once its status is final."""
        return self.status in FINAL_STATUSES


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The knowledge of this machine about a run elsewhere.

    Attributes:
        created_unix_nano: when the cluster was asked; None: it never was.
        digest: of the image, as the node has it; None: unknown.
        disruption: who ended it from outside, and why; None: nobody.
        container_reason: why its container ended, in the cluster's word; None: it did not, or never began.
        own: the record of the agent there; None: it did not come to record the run.
        ended_unix_nano: when the program's end was seen; None: it was not.
    """

    created_unix_nano: int | None = None
    digest: str | None = None
    disruption: str | None = None
    container_reason: str | None = None
    own: SelfRecord | None = None
    ended_unix_nano: int | None = None

    def end(self, found: RunUpdate) -> RunUpdate:
        """Return the end of the run, where this machine's client ended with `found`."""
        own = self.own
        if self.disruption and not (found.status == RunStatus.CANCELLED and not (own and own.has_ended)):
            return RunUpdate(status=RunStatus.FAILED, reason=f"kubernetes: {short_reason(self.disruption)}")
        if own is None or not own.has_ended:
            if found.status == RunStatus.CANCELLED:
                return found
            if self.container_reason in ("Completed", "Error"):
                return RunUpdate(status=RunStatus.FAILED, reason="the agent in the pod ended without a word")
            # The exit code is the agent's, not the program's.
            return RunUpdate(status=found.status, reason=found.reason)
        if own.undelivered and own.status == RunStatus.SUCCEEDED:
            reason = f"the collector did not accept {own.undelivered} messages before the pod ended"
            return RunUpdate(status=RunStatus.FAILED, exit_code=own.exit_code, reason=reason)
        return RunUpdate(status=own.status, exit_code=own.exit_code, reason=own.reason or "")


def read_report(directory: Path, platform: str = "", index: int = 0) -> Report:
    """Return what the client left in a run directory of the pod with this number.

    `platform` is the one that the run records itself under.
    """
    learned = read_learned(directory / report_name(index))
    _, _, digest = str(learned.get("image_id") or "").rpartition("@")
    return Report(
        created_unix_nano=learned.get("created_unix_nano"),
        digest=digest or None,
        disruption=learned.get("disruption"),
        container_reason=learned.get("reason"),
        own=_read_own(learned.get("message")) or _guess_own(learned, platform),
        ended_unix_nano=learned.get("ended_unix_nano"),
    )


def _read_own(message: object) -> SelfRecord | None:
    try:
        return SelfRecord(**json.loads(str(message)))
    except (ValueError, TypeError):
        return None


def _guess_own(learned: Mapping[str, object], platform: str) -> SelfRecord | None:
    """Return the record of an agent whose container nobody saw end, such as on a node that has gone.

    Such an agent begins nothing before the collector has the request.
    """
    node = learned.get("began_on")
    if not node or "reason" in learned:
        return None
    node_uuid = facts.node_uuid(facts.Surroundings(), f"{platform}/{node}")
    return SelfRecord(node_uuid=str(node_uuid), hostname=str(node), status=RunStatus.RUNNING.value)


def write_shown(directory: Path, records: Sequence[SelfRecord], unix_nano: int) -> None:
    """Write the results of a run elsewhere as its events, for this machine's display alone.

    The throughput is that of all nodes, the rest the first one's.
    """
    results = dict(records[0].results)
    if "throughput" in results:
        values = (record.results["throughput"][0] for record in records if "throughput" in record.results)
        results["throughput"] = (sum(values), results["throughput"][1])
    lines = [
        json.dumps({"t": unix_nano, "event": "result", "name": name, "value": value, "unit": unit, "phase": None})
        for name, (value, unit) in results.items()
    ]
    (directory / "events.0.0.jsonl").write_text("".join(f"{line}\n" for line in lines))
