"""Makes a Kubernetes Job, follows its pod, and ends as its program did: `job_client.py make TASK CLIENT …`.

TASK is a JSON object: `job`, the manifest; `measured`, a line about who measures; `reports`, the file for what is
learned of each pod; `service`, the manifest of a Service by which several pods find each other; `secret`, the Job's own
Secret as {key: {"file": path} or {"text": text}}. The cluster deletes both with the Job. CLIENT is kubectl or oc with
its own options. On SIGTERM the Job is deleted, and this process ends after the program.

`job_client.py delete NAME CLIENT …` deletes a Job and waits until its program has ended.

It uses the standard library alone and runs with `python -I -S`, as the supervisor does.
"""

import base64
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# Before the reason of a failure, on stderr; the program's whole output goes to stdout.
PREFIX = "kubernetes: "

# The exit code when the cluster failed, not the program; container engines use the same.
CANNOT_RUN = 125

# The time to pull an image and wait for a node; `--timeout` ends it sooner.
_START_SECONDS = 900.0

# The longest silence of the API server.
_SILENCE_SECONDS = 300.0
_RETRY_SECONDS = 1.0

# The program's end and its last output come within this of each other.
_LOG_SECONDS = 10.0

# Beyond its grace, a pod that was told to end is on a node that has gone.
_GONE_SECONDS = 15.0

# Less than the supervisor allows for a command afterwards.
_DELETE_SECONDS = 45.0

# Of a reason; the report has the rest.
_REASON_CHARACTERS = 110

# As a shell's, of a program that does not exist; Kubernetes gives 128.
_NOT_FOUND = 127

# Reasons of a waiting container that does not start without help.
_HOPELESS = {"ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RunContainerError"}
_HOPELESS |= {"CreateContainerConfigError", "CreateContainerError"}

# Causes of an early end, as the pod's condition DisruptionTarget names them.
_DISRUPTIONS = {
    "PreemptionByScheduler": "a pod of higher priority took its place",
    "DeletionByTaintManager": "its node is gone, or was closed to it",
    "EvictionByEvictionAPI": "it was evicted: its node is being emptied",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "its node ended it",
}

Object = Mapping[str, Any]


class JobError(Exception):
    """The program did not run, or its end is unknown."""


def main(arguments: Sequence[str]) -> int:
    """Return the program's exit code, 128 + its number for a signal."""
    action, what, client = arguments[0], arguments[1], Client(arguments[2:])
    try:
        if action == "delete":
            _delete(what, client)
            return 0
        task = json.loads(what)
        followers = [_Follower(task, client, index) for index in range(len(task["reports"]))]

        def stop(_number: int, _frame: object) -> None:
            for follower in followers:
                follower.events.put(_STOP)

        signal.signal(signal.SIGTERM, stop)
        if "measured" in task:
            _report(f"gpuagent: {task['measured']}")
        job = json.loads(client.call("create", "--filename=-", "--output=json", text=json.dumps(task["job"])))
        if "secret" in task:
            name, uid = job["metadata"]["name"], job["metadata"]["uid"]
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
            data = {key: base64.b64encode(_content(source)).decode() for key, source in task["secret"].items()}
            metadata = {"name": name, "labels": task["job"]["metadata"]["labels"], "ownerReferences": [owner]}
            made = [{"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}]
            if "service" in task:
                made.append({**task["service"], "metadata": metadata})
            for each in made:
                client.call("create", "--filename=-", "--output=name", text=json.dumps(each))
        return _follow_all(followers)
    except JobError as error:
        return _cannot_run(error)


def _follow_all(followers: Sequence["_Follower"]) -> int:
    codes = [CANNOT_RUN] * len(followers)

    def follow(index: int) -> None:
        try:
            codes[index] = followers[index].follow()
        except JobError as error:
            codes[index] = _cannot_run(error)

    threads = [threading.Thread(target=follow, args=(index,), daemon=True) for index in range(1, len(followers))]
    for thread in threads:
        thread.start()
    follow(0)
    for thread in threads:
        while thread.is_alive():  # an endless wait would miss signals
            thread.join(_RETRY_SECONDS)
    return next(filter(None, codes), 0)


def _cannot_run(error: JobError) -> int:
    _report(f"{PREFIX}{short_reason(str(error))}")
    return CANNOT_RUN


def short_reason(message: str) -> str:
    """Return the first cause of a refusal by the API server, which lists every rule and who may use it."""
    text = message.rpartition("is forbidden: ")[2] or message
    _, constraint, rules = text.partition("security context constraint: ")
    if constraint:
        causes = (rule for rule in rules.strip("[]").split(", ") if "not usable by" not in rule)
        text = f"no security context constraint allows it: {next(causes, rules)}"
    text = " ".join(text.split())
    return text if len(text) <= _REASON_CHARACTERS else f"{text[:_REASON_CHARACTERS].rstrip(' ,;:')}…"


class Client:
    """A connection to the API server through kubectl."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command

    def call(self, *words: str, text: str | None = None) -> str:
        """Return the client's output. Raises JobError with its last error line when it fails."""
        done = subprocess.run([*self._command, *words], input=text or "", capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.strip()]
            raise JobError(errors[-1] if errors else f"the client ended with exit code {done.returncode}")
        return done.stdout

    def find(self, kind: str, *selection: str) -> list[Object]:
        """Return the selected objects. Raises JobError without an answer."""
        try:
            return list(json.loads(self.call("get", kind, *selection, "--output=json"))["items"])
        except (ValueError, KeyError, TypeError) as error:
            raise JobError(f"cannot read the list of {kind}: {error!r}") from error

    def watch(self, kind: str, *selection: str) -> Iterator[Object]:
        """Yield an event for each change of the selected objects, until the connection ends."""
        words = ["get", kind, *selection, "--watch", "--output-watch-events", "--output=json"]
        with subprocess.Popen(
            [*self._command, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            if process.stdout:
                yield from _objects(iter(lambda: os.read(process.stdout.fileno(), 65536), b""))  # type: ignore[union-attr]

    def logs(self, pod: str, *options: str) -> "subprocess.Popen[bytes]":
        """Start to copy a pod's log to stdout, until its container or the connection has ended."""
        words = ["logs", "--follow", pod, "--container=workload", *options]
        nothing = subprocess.DEVNULL
        return subprocess.Popen([*self._command, *words], stdin=nothing, stderr=nothing)


def _objects(chunks: Iterator[bytes]) -> Iterator[Object]:
    decoder, text = json.JSONDecoder(), ""
    for chunk in chunks:
        text = (text + chunk.decode(errors="replace")).lstrip()
        with contextlib.suppress(ValueError):  # the rest of the object is still to come
            while text:
                found, end = decoder.raw_decode(text)
                yield found
                text = text[end:].lstrip()


_STOP: Object = {"type": "STOP"}
_NONE: Object = {"type": "NONE"}


class _Follower:
    """A follower of one of a Job's pods to its end. `events` may get `_STOP` at any time.

    Of several pods only the first one's output is copied.
    """

    def __init__(self, task: Object, client: Client, index: int) -> None:
        self._name = task["job"]["metadata"]["name"]
        self._client = client
        self._report_file = task["reports"][index]
        self._copies_log = index == 0
        self._measures_itself = "measured" in task
        own = f",batch.kubernetes.io/job-completion-index={index}" if len(task["reports"]) > 1 else ""
        self._selection = f"--selector=job-name={self._name}{own}"
        self.events: queue.SimpleQueue[Object] = queue.SimpleQueue()
        self._learned: dict[str, Any] = {"created_unix_nano": time.time_ns()}
        self._has_begun = False
        self._log: subprocess.Popen[bytes] | None = None
        # When the log's connection was seen to have ended, in Unix seconds.
        self._log_ended: float | None = None
        self._pod: Object | None = None
        self._said = ""
        self._silent_since: float | None = None
        self._stopped = False
        # When to give the pod up.
        self._deadline = time.monotonic() + _START_SECONDS

    def follow(self) -> int:
        """Return the program's exit code."""
        threading.Thread(target=self._watch, daemon=True).start()
        try:
            while (ended := self._next()) is None:
                pass
            self._learn(ended_unix_nano=time.time_ns())
        except JobError as error:
            self._learn(failure=str(error))
            raise
        finally:
            if self._log:
                try:
                    self._log.wait(_LOG_SECONDS)
                except subprocess.TimeoutExpired:
                    self._log.kill()
        reason, message = ended.get("reason", ""), " ".join(str(ended.get("message", "")).split())
        disrupted = None if self._stopped else disruption(self._pod or {})
        self._learn(message=ended.get("message"), reason=reason, disruption=disrupted)
        if disrupted or reason not in ("Completed", "Error"):
            # A pod that measures itself leaves its report as the message.
            words = reason if self._measures_itself else f"{reason} {message}".strip()
            _report(f"{PREFIX}{disrupted or words}")
        return _NOT_FOUND if reason == "StartError" else int(ended["exitCode"])

    def _next(self) -> Object | None:
        """Take the next event; return the program's final state, None while there is none."""
        try:
            event = self.events.get(timeout=_RETRY_SECONDS)
        except queue.Empty:
            event = {}
        match event.get("type"):
            case "STOP":
                self._stopped = True
                self._client.call("delete", "job", self._name, "--ignore-not-found", "--wait=false")
            case "NONE" if self._pod is None:
                self._find_refusal()
            case "NONE":
                raise JobError(disruption(self._pod or {}) or "its pod was deleted")
            case "DELETED":
                self._pod = event["object"]
                if ended := terminated(self._pod):
                    return ended
                raise JobError(disruption(self._pod) or "its pod was deleted")
            case "ADDED" | "MODIFIED":
                self._pod = event["object"]
                return self._look(event["object"])
        self._continue_log()
        if time.monotonic() > self._deadline:
            if self._pod and self._pod["metadata"].get("deletionTimestamp"):
                raise JobError(disruption(self._pod) or "its node does not answer")
            raise JobError(
                f"the pod did not start within {_START_SECONDS:.0f} s: {self._said or 'for no known reason'}"
            )
        return None

    def _look(self, pod: Object) -> Object | None:
        has_begun = any({"running", "terminated"} & status.get("state", {}).keys() for status in containers(pod))
        if has_begun and not self._has_begun:
            self._has_begun, self._deadline = True, float("inf")
            if self._copies_log:
                self._log = self._client.logs(pod["metadata"]["name"])
        own: Object = next(iter(containers(pod)), {})
        self._learn(image_id=own.get("imageID"), container_id=own.get("containerID"))
        if has_begun:
            self._learn(began_on=pod.get("spec", {}).get("nodeName"))
        if ended := terminated(pod):
            return ended
        if pod["metadata"].get("deletionTimestamp"):
            grace = pod["metadata"].get("deletionGracePeriodSeconds") or 0
            self._deadline = min(self._deadline, time.monotonic() + grace + _GONE_SECONDS)
        elif not has_begun and (reason := waiting_reason(pod)) and reason != self._said:
            self._said = reason
            _report(f"the pod waits: {reason}")
        return None

    def _continue_log(self) -> None:
        """Follow the log again where only its connection has ended: its program would have ended seconds ago."""
        if self._log is None or self._pod is None or self._log.poll() is None:
            return
        self._log_ended = self._log_ended or time.time()
        if time.time() - self._log_ended > _LOG_SECONDS:
            since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._log_ended))
            self._log = self._client.logs(self._pod["metadata"]["name"], f"--since-time={since}")
            self._log_ended = None

    def _watch(self) -> None:
        while True:
            try:
                pods = self._client.find("pods", self._selection)
                self._silent_since = None
                for pod in pods or ():
                    self.events.put({"type": "MODIFIED", "object": pod})
                if not pods:
                    self.events.put(_NONE)
                for event in self._client.watch("pods", self._selection) if pods else ():
                    self.events.put(event)
            except JobError as error:
                now = time.monotonic()
                self._silent_since = self._silent_since or now
                if now - self._silent_since > _SILENCE_SECONDS:
                    self._said = f"no answer for {_SILENCE_SECONDS:.0f} s: {error}"
                    self._deadline = 0.0
            time.sleep(_RETRY_SECONDS)

    def _find_refusal(self) -> None:
        """Raise JobError if the cluster refuses to make the pod, which only an event reports."""
        if self._stopped:
            raise JobError("it was stopped before its pod existed")
        chosen = f"--field-selector=involvedObject.kind=Job,involvedObject.name={self._name},reason=FailedCreate"
        with contextlib.suppress(IndexError):
            try:
                refused = self._client.find("events", chosen)[0]
            except JobError:  # not everybody may read events
                return
            raise JobError(str(refused.get("message")))

    def _learn(self, **facts: object) -> None:
        if self._learned == {**self._learned, **facts}:
            return
        self._learned |= facts
        with open(f"{self._report_file}.new", "w") as file:  # noqa: PTH123
            json.dump(self._learned, file)
        os.replace(f"{self._report_file}.new", self._report_file)  # noqa: PTH105


def _content(source: Mapping[str, str]) -> bytes:
    if "text" in source:
        return source["text"].encode()
    try:
        with open(source["file"], "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError as error:
        raise JobError(f"cannot read {source['file']}: {error.strerror}") from error


def _delete(name: str, client: Client) -> None:
    """Delete a Job, and wait until its program has ended; its objects may go a moment later."""
    client.call("delete", "job", name, "--ignore-not-found", "--wait=false")
    deadline = time.monotonic() + _DELETE_SECONDS
    while left := [pod for pod in client.find("pods", f"--selector=job-name={name}") if _may_run(pod)]:
        if time.monotonic() > deadline:
            names = [pod["metadata"]["name"] for pod in left]
            client.call("delete", "pod", *names, "--ignore-not-found", "--grace-period=0", "--force", "--wait=false")
            return
        time.sleep(0.2)


def _may_run(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") not in ("Succeeded", "Failed") and not any(
        "terminated" in status.get("state", {}) for status in containers(pod)
    )


def terminated(pod: Object) -> Object | None:
    """Return the program's final state; None: it runs or waits. Raises JobError for a pod that failed without one."""
    for status in containers(pod):
        if ended := status.get("state", {}).get("terminated"):
            return dict(ended)
    status = pod.get("status", {})
    for before in status.get("initContainerStatuses", ()):
        ended = before.get("state", {}).get("terminated", {})
        if ended.get("exitCode"):
            raise JobError(f"gpuagent could not be brought into the pod: {ended.get('message') or ended['reason']}")
    if status.get("phase") == "Failed":
        raise JobError(f"{status.get('reason', 'the pod failed')}: {status.get('message', 'no reason is given')}")
    return None


def disruption(pod: Object) -> str | None:
    """Return who ended a pod before its program, and why; None: nobody did."""
    status = pod.get("status", {})
    if status.get("reason") == "Evicted":
        return f"its node evicted it: {status.get('message', 'no reason is given')}"
    for condition in status.get("conditions", ()):
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            words = _DISRUPTIONS.get(condition.get("reason", ""), condition.get("reason", "it was disrupted"))
            return f"{words} ({condition.get('message', '')})"
    return None


def waiting_reason(pod: Object) -> str:
    """Return why a pod waits, "" where that is normal. Raises JobError where it would wait for ever."""
    for status in (*pod.get("status", {}).get("initContainerStatuses", ()), *containers(pod)):
        waiting = status.get("state", {}).get("waiting", {})
        words = f"{waiting.get('reason', '')}: {waiting.get('message', '')}"
        if waiting.get("reason") in _HOPELESS:
            raise JobError(words)
        if waiting.get("message"):
            return words
    conditions = pod.get("status", {}).get("conditions", [])
    return next((c.get("message", "") for c in conditions if c.get("reason") == "Unschedulable"), "")


def containers(pod: Object) -> Sequence[Object]:
    """Return the states of a pod's containers."""
    return list(pod.get("status", {}).get("containerStatuses", []))


def _report(words: str) -> None:
    print(words, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
