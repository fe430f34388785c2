"""Makes a Kubernetes Job, follows its log, and ends as its program did: `job_client.py MANIFEST CLIENT …`.

The client is kubectl, or oc, with its own options. The Job is left for others to delete, since when this process is
killed it could not. Uses the standard library alone and runs with `python -I -S`, as the supervisor does.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# Stands before why it failed, on stderr; of the program, everything comes on stdout.
PREFIX = "kubernetes: "

# The exit code when not the program failed but the cluster, as of container engines.
CANNOT_RUN = 125

_POLL_SECONDS = 0.5
# How long an image may be pulled and a node be waited for; `--timeout` ends it sooner.
_START_SECONDS = 900.0

# How long the API server may give no answer.
_SILENCE_SECONDS = 60.0

# Why a container waits that will not start without somebody's help.
_HOPELESS = frozenset(
    (
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    )
)

Object = Mapping[str, Any]


class JobError(Exception):
    """The program did not run, or how it ended cannot be known."""


def main(arguments: Sequence[str], sleep: Callable[[float], None] = time.sleep) -> int:
    """Return the program's exit code, 128 and its number for a signal."""
    manifest, client = arguments[0], Client(arguments[1:], sleep)
    try:
        return _run(manifest, client)
    except JobError as error:
        _tell(f"{PREFIX}{error}")
        return CANNOT_RUN


class Client:
    """Asks the API server by kubectl."""

    def __init__(self, command: Sequence[str], sleep: Callable[[float], None]) -> None:
        self._command = command
        self.sleep = sleep
        self._silent_since: float | None = None

    def call(self, *words: str, text: str | None = None) -> str:
        """Return what the client prints. Raises JobError with what it said when it fails."""
        done = subprocess.run([*self._command, *words], input=text or "", capture_output=True, text=True, check=False)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.strip()]
            raise JobError(said[-1] if said else f"the client ended with exit code {done.returncode}")
        return done.stdout

    def follow(self, pod: str) -> None:
        """Copy the pod's log to our stdout until its container has ended, or the connection."""
        subprocess.run([*self._command, "logs", "--follow", pod], stdin=subprocess.DEVNULL, check=False)

    def find(self, kind: str, *selection: str) -> list[Object] | None:
        """Return the objects that are selected; None: no answer, which JobError ends when it lasts."""
        try:
            items = json.loads(self.call("get", kind, *selection, "--output=json"))["items"]
        except (JobError, ValueError, KeyError, TypeError) as error:
            now = time.monotonic()
            self._silent_since = self._silent_since or now
            if now - self._silent_since > _SILENCE_SECONDS:
                raise JobError(f"no answer for {_SILENCE_SECONDS:.0f} s: {error}") from error
            return None
        self._silent_since = None
        return list(items)


def _run(manifest: str, client: Client) -> int:
    name = json.loads(manifest)["metadata"]["name"]
    client.call("create", "--filename=-", text=manifest)
    pod = _wait_for_start(name, client)
    client.follow(pod["metadata"]["name"])
    return _exit_code(_wait_for_end(name, client))


def _wait_for_start(name: str, client: Client) -> Object:
    """Return the Job's pod when its program has started."""
    deadline = time.monotonic() + _START_SECONDS
    told = ""
    while time.monotonic() < deadline:
        pods = client.find("pods", f"--selector=job-name={name}")
        if pods and (_terminated(pods[0]) or _has_started(pods[0])):
            return pods[0]
        waits_for = _waits_for(pods[0]) if pods else _refusal(name, client) if pods == [] else ""
        if waits_for and waits_for != told:
            told = waits_for
            _tell(f"the pod waits: {waits_for}")
        client.sleep(_POLL_SECONDS)
    raise JobError(f"the pod did not start within {_START_SECONDS:.0f} s: {told or 'no reason is known'}")


def _wait_for_end(name: str, client: Client) -> Object:
    """Return how the container ended."""
    while True:
        pods = client.find("pods", f"--selector=job-name={name}")
        if pods == []:
            raise JobError("its pod was deleted")
        if pods and (ended := _terminated(pods[0])):
            return ended
        client.sleep(_POLL_SECONDS)


def _exit_code(ended: Object) -> int:
    reason, message = ended.get("reason", ""), " ".join(str(ended.get("message", "")).split())
    if reason not in ("Completed", "Error"):
        _tell(f"{PREFIX}{reason} {message}".strip())
    return int(ended["exitCode"])


def _has_started(pod: Object) -> bool:
    return any("running" in status.get("state", {}) for status in _containers(pod))


def _terminated(pod: Object) -> Object | None:
    """Return how the container ended, None while it has not. Raises JobError for a pod that failed without."""
    for status in _containers(pod):
        if ended := status.get("state", {}).get("terminated"):
            return dict(ended)
    status = pod.get("status", {})
    if status.get("phase") == "Failed":
        raise JobError(f"{status.get('reason', 'the pod failed')}: {status.get('message', 'no reason is given')}")
    return None


def _waits_for(pod: Object) -> str:
    """Return what a pod waits for, "" where that is nothing special. Raises JobError where it would wait for ever."""
    for status in _containers(pod):
        waiting = status.get("state", {}).get("waiting", {})
        words = f"{waiting.get('reason', '')}: {waiting.get('message', '')}"
        if waiting.get("reason") in _HOPELESS:
            raise JobError(words)
        if waiting.get("message"):
            return words
    conditions = pod.get("status", {}).get("conditions", [])
    return next((c.get("message", "") for c in conditions if c.get("reason") == "Unschedulable"), "")


def _refusal(name: str, client: Client) -> str:
    """Raise JobError where the cluster refuses to make the Job's pod, which only an event tells; return ""."""
    chosen = f"--field-selector=involvedObject.kind=Job,involvedObject.name={name},reason=FailedCreate"
    for event in client.find("events", chosen) or ():
        raise JobError(str(event.get("message")))
    return ""


def _containers(pod: Object) -> Sequence[Object]:
    return list(pod.get("status", {}).get("containerStatuses", []))


def _tell(words: str) -> None:
    print(words, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
