"""Makes a Kubernetes Job, follows its log, and ends as its program did: `job_client.py MANIFEST CLIENT …`.

The client is kubectl or oc with its own options. Others delete the Job, since this process cannot when it is killed.
It uses the standard library alone and runs with `python -I -S`, as the supervisor does.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# Before the reason of a failure, on stderr; the program's whole output goes to stdout.
PREFIX = "kubernetes: "

# The exit code when the cluster failed, not the program; container engines use the same.
CANNOT_RUN = 125

_POLL_SECONDS = 0.5
# The time to pull an image and wait for a node; `--timeout` ends it sooner.
_START_SECONDS = 900.0

# The longest silence of the API server.
_SILENCE_SECONDS = 60.0

# Reasons of a waiting container that does not start without help.
_HOPELESS = {"ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RunContainerError"}
_HOPELESS |= {"CreateContainerConfigError", "CreateContainerError"}

Object = Mapping[str, Any]


class JobError(Exception):
    """The program did not run, or its end is unknown."""


def main(arguments: Sequence[str], sleep: Callable[[float], None] = time.sleep) -> int:
    """Return the program's exit code, 128 + its number for a signal."""
    manifest, client = arguments[0], Client(arguments[1:], sleep)
    name = json.loads(manifest)["metadata"]["name"]
    try:
        client.call("create", "--filename=-", text=manifest)
        pod = _wait_for_start(name, client)
        client.follow(pod["metadata"]["name"])
        ended = _wait_for_end(name, client)
    except JobError as error:
        _report(f"{PREFIX}{error}")
        return CANNOT_RUN
    reason, message = ended.get("reason", ""), " ".join(str(ended.get("message", "")).split())
    if reason not in ("Completed", "Error"):
        _report(f"{PREFIX}{reason} {message}".strip())
    return int(ended["exitCode"])


class Client:
    """A connection to the API server through kubectl."""

    def __init__(self, command: Sequence[str], sleep: Callable[[float], None]) -> None:
        self._command = command
        self.sleep = sleep
        self._silent_since: float | None = None

    def call(self, *words: str, text: str | None = None) -> str:
        """Return the client's output. Raises JobError with its last error line when it fails."""
        done = subprocess.run([*self._command, *words], input=text or "", capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.strip()]
            raise JobError(errors[-1] if errors else f"the client ended with exit code {done.returncode}")
        return done.stdout

    def follow(self, pod: str) -> None:
        """Copy the pod's log to stdout until its container or the connection has ended."""
        subprocess.run([*self._command, "logs", "--follow", pod], stdin=subprocess.DEVNULL, check=False)

    def find(self, kind: str, *selection: str) -> list[Object] | None:
        """Return the selected objects; None: no answer. Raises JobError when that lasts."""
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


def _wait_for_start(name: str, client: Client) -> Object:
    """Return the Job's pod when its program has started."""
    deadline = time.monotonic() + _START_SECONDS
    reported = ""
    while time.monotonic() < deadline:
        pods = client.find("pods", f"--selector=job-name={name}")
        if pods and (
            _find_final_state(pods[0]) or any("running" in status.get("state", {}) for status in _containers(pods[0]))
        ):
            return pods[0]
        if pods == []:
            # Only an event reports that the cluster refuses to make the Job's pod.
            chosen = f"--field-selector=involvedObject.kind=Job,involvedObject.name={name},reason=FailedCreate"
            for event in client.find("events", chosen) or ():
                raise JobError(str(event.get("message")))
        reason = _waiting_reason(pods[0]) if pods else ""
        if reason and reason != reported:
            reported = reason
            _report(f"the pod waits: {reason}")
        client.sleep(_POLL_SECONDS)
    raise JobError(f"the pod did not start within {_START_SECONDS:.0f} s: {reported or 'the reason is unknown'}")


def _wait_for_end(name: str, client: Client) -> Object:
    """Return the container's final state."""
    while True:
        pods = client.find("pods", f"--selector=job-name={name}")
        if pods == []:
            raise JobError("its pod was deleted")
        if pods and (ended := _find_final_state(pods[0])):
            return ended
        client.sleep(_POLL_SECONDS)


def _find_final_state(pod: Object) -> Object | None:
    """Return the container's final state; None: it runs or waits. Raises JobError for a pod that failed without one."""
    for status in _containers(pod):
        if ended := status.get("state", {}).get("terminated"):
            return dict(ended)
    status = pod.get("status", {})
    if status.get("phase") == "Failed":
        raise JobError(f"{status.get('reason', 'the pod failed')}: {status.get('message', 'no reason is given')}")
    return None


def _waiting_reason(pod: Object) -> str:
    """Return why a pod waits, "" where that is normal. Raises JobError where it would wait for ever."""
    for status in _containers(pod):
        waiting = status.get("state", {}).get("waiting", {})
        words = f"{waiting.get('reason', '')}: {waiting.get('message', '')}"
        if waiting.get("reason") in _HOPELESS:
            raise JobError(words)
        if waiting.get("message"):
            return words
    conditions = pod.get("status", {}).get("conditions", [])
    return next((c.get("message", "") for c in conditions if c.get("reason") == "Unschedulable"), "")


def _containers(pod: Object) -> Sequence[Object]:
    return list(pod.get("status", {}).get("containerStatuses", []))


def _report(words: str) -> None:
    print(words, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
