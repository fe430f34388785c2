"""kubectl on one cluster."""

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.kubernetes.problems import DeployError, MisuseError

NAMESPACE = "gpuagent"

# The first one with kustomize 5.
_OLDEST_KUBECTL = (1, 27)

_ANSWERS_WITHIN = "10s"

# How often pods are looked at while a workload comes up, and how often the same trouble is seen before it is hopeless.
# The first look finds pods that an earlier deployment left.
_FIRST_LOOK_SECONDS = 1.0
_LOOK_SECONDS = 5.0
_LOOKS = 4
# Half a minute: a second attempt to pull was seen to fail 27 s after the first.
_PULL_LOOKS = 7
_PULL_BACK_OFF = "ImagePullBackOff"
_FAILURES = {"CrashLoopBackOff", _PULL_BACK_OFF, "ErrImageNeverPull", "InvalidImageName", "RunContainerError"}
_FAILURES |= {"CreateContainerConfigError", "CreateContainerError"}


def need_kubectl() -> None:
    """Check for a kubectl that can render the manifests. Raises MisuseError where it is missing or too old."""
    if not shutil.which("kubectl"):
        raise MisuseError("kubectl is not on PATH; install it: https://kubernetes.io/docs/tasks/tools/")
    version = json.loads(_ask(["version", "--client", "--output=json"]))["clientVersion"]
    found = (int(version["major"]), int(version["minor"].rstrip("+")))
    if found < _OLDEST_KUBECTL:
        oldest = ".".join(map(str, _OLDEST_KUBECTL))
        raise MisuseError(f"kubectl {version['gitVersion']} has an old kustomize; install {oldest} or newer")


def render(folder: Path) -> str:
    """Return the manifests of a kustomization, as YAML. Raises DeployError where kustomize failed."""
    return _ask(["kustomize", str(folder)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A context of a kubeconfig."""

    name: str
    server: str


def find_context(name: str | None) -> Context:
    """Return the context with this name; None: the kubeconfig's current one. Raises MisuseError: it does not exist."""
    config = json.loads(_ask(["config", "view", "--output=json"]))
    clusters = {each["name"]: each["cluster"].get("server", "?") for each in config.get("clusters") or ()}
    contexts = {each["name"]: each["context"].get("cluster") for each in config.get("contexts") or ()}
    chosen = name or config.get("current-context")
    known = ", ".join(sorted(contexts)) or "none; get some first: gcloud container clusters get-credentials"
    if not chosen:
        raise MisuseError(f"kubectl has no current context; choose a cluster by CONTEXT=…; there are: {known}")
    if chosen not in contexts:
        raise MisuseError(f"kubectl has no context {chosen}; there are: {known}")
    return Context(name=chosen, server=clusters.get(contexts[chosen], "?"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A cause that keeps a container of a pod from running.

    Attributes:
        is_hopeless: waiting alone will not help.
        looks: how often it is seen before it is hopeless.
    """

    pod: str
    container: str
    reason: str
    words: str
    is_hopeless: bool
    looks: int

    @property
    def key(self) -> str:
        """The pod, its container and the reason: the words change with every attempt."""
        return f"{self.pod} {self.container} {self.reason}"


def troubles(pod: dict[str, Any]) -> Iterator[Trouble]:
    """Yield what keeps a pod's containers from running."""
    status = pod.get("status", {})
    for each in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        waiting, ended = each["state"].get("waiting", {}), each.get("lastState", {}).get("terminated", {})
        # The kubelet shows one of them after an attempt, and the other while it waits for the next.
        reason = str(waiting.get("reason", "")).replace("ErrImagePull", _PULL_BACK_OFF)
        if reason not in _FAILURES:
            continue
        # In a back-off, the last attempt has the cause.
        cause = ended.get("message") or (f"it ended with exit code {ended['exitCode']}" if ended else "")
        words = " ".join((cause or waiting.get("message") or "no reason is given").split())
        # An attempt or two may fail for what comes later, such as a database.
        is_hopeless = reason != "CrashLoopBackOff" or "exec" in words or each.get("restartCount", 0) > 2
        yield Trouble(
            pod=pod["metadata"]["name"],
            container=each["name"],
            reason=reason,
            words=words[:300],
            is_hopeless=is_hopeless,
            looks=_PULL_LOOKS if reason == _PULL_BACK_OFF else _LOOKS,
        )


class Cluster:
    """A runner of kubectl on one context, in the namespace of the deployment."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._options = [f"--context={context.name}", f"--namespace={NAMESPACE}"]

    def need_answer(self) -> None:
        """Check that the cluster answers. Raises MisuseError where it does not."""
        done = self._kubectl(["get", "--raw=/version", f"--request-timeout={_ANSWERS_WITHIN}"], capture=True)
        if done.returncode:
            name, server = self.context.name, self.context.server
            raise MisuseError(
                f"the cluster of context {name} ({server}) does not answer: {_last_line(done.stderr)}\n"
                f"check VPN and credentials with: kubectl --context={name} get nodes"
            )

    def has_secret(self, name: str) -> bool:
        """Return whether the namespace has this Secret."""
        return self.has("secret", name)

    def has(self, kind: str, name: str) -> bool:
        """Return whether the namespace has an object of this kind and name."""
        return bool(self._need(["get", kind, name, "--ignore-not-found", "--output=name"]).strip())

    def create_secret(self, name: str, *sources: str, text: str | None = None) -> None:
        """Make a Secret from KEY=PATH sources; the content of /dev/stdin is `text`."""
        words = ["create", "secret", "generic", name, *(f"--from-file={source}" for source in sources)]
        self._need(words, text=text)

    def replace_secret(self, name: str, *sources: str) -> None:
        """Make a Secret as `create_secret` does, replacing one with that name."""
        self._need(["delete", "secret", name, "--ignore-not-found"])
        self.create_secret(name, *sources)

    def create_secret_of_variables(self, name: str, file: Path) -> None:
        """Make a Secret from a file with NAME=VALUE in each line."""
        self._need(["create", "secret", "generic", name, f"--from-env-file={file}"])

    def apply(self, manifests: str) -> None:
        """Create or change objects, and print the changes."""
        self._show(["apply", "--filename=-"], manifests)

    def delete(self, manifests: str) -> None:
        """Delete what is there of this, and say what was deleted."""
        self._show(["delete", "--ignore-not-found", "--filename=-"], manifests)

    def delete_labelled(self, kind: str, label: str) -> None:
        """Delete the namespace's objects of a kind that carry a label, as NAME=VALUE."""
        self._show(["delete", kind, f"--selector={label}", "--ignore-not-found"], None)

    def diff(self, manifests: str) -> bool:
        """Show what `apply` would change; return whether that is anything."""
        # kubectl says 1 for differences, and more for failures.
        return bool(self._show(["diff", "--filename=-"], manifests, fine=(0, 1)))

    def wait_for(self, workload: str, seconds: int) -> None:
        """Wait until a workload, as daemonset/NAME, runs as it was applied; print what keeps its pods from running.

        Raises DeployError: it does not come, or a pod has what waiting cannot help against.
        """
        words = ["rollout", "status", workload, f"--timeout={seconds}s"]
        # Popen's own end would wait for it.
        with subprocess.Popen(["kubectl", *self._options, *words]) as rollout:
            try:
                self._watch_pods(workload, rollout)
            finally:
                rollout.terminate()
        if rollout.returncode:
            raise DeployError(f"{workload} did not become ready; see the output above")

    def _watch_pods(self, workload: str, rollout: "subprocess.Popen[bytes]") -> None:
        labels = json.loads(self.field(workload, "{.spec.selector.matchLabels}"))
        selector = "--selector=" + ",".join(f"{name}={value}" for name, value in labels.items())
        seen: dict[str, int] = {}
        seconds = _FIRST_LOOK_SECONDS
        while True:
            with suppress(subprocess.TimeoutExpired):
                rollout.wait(seconds)
                return
            seconds = _LOOK_SECONDS
            pods = json.loads(self._need(["get", "pods", selector, "--output=json"]))["items"]
            if workload.startswith("statefulset/"):
                # A StatefulSet waits until they are ready before it replaces them (its documentation, "forced
                # rollback").
                revision = self.field(workload, "{.status.updateRevision}")
                stuck = [
                    pod
                    for pod in pods
                    if pod["metadata"]["labels"].get("controller-revision-hash") != revision and any(troubles(pod))
                ]
                for pod in stuck:
                    self._need(["delete", "pod", pod["metadata"]["name"], "--wait=false"])
                pods = [pod for pod in pods if pod not in stuck]
            for trouble in (found for pod in pods for found in troubles(pod)):
                seen[trouble.key] = seen.get(trouble.key, 0) + 1
                words = f"{trouble.key}: {trouble.words}"
                if seen[trouble.key] == 1:
                    print(words, flush=True)
                if trouble.is_hopeless and seen[trouble.key] >= trouble.looks:
                    raise DeployError(f"{workload} cannot become ready: {words}{self._last_words(trouble)}")

    def _last_words(self, trouble: Trouble) -> str:
        options = [f"--container={trouble.container}", "--tail=1", "--previous"]
        done = self._kubectl(["logs", trouble.pod, *options], capture=True)
        return f"; its last line: {_last_line(done.stdout)}" if done.returncode == 0 and done.stdout.strip() else ""

    def field(self, workload: str, path: str) -> str:
        """Return a field of an object, as {.status.phase}."""
        return self._need(["get", workload, f"--output=jsonpath={path}"])

    def run_inside(self, pod: str, *command: str) -> str:
        """Run a command in a pod, and return its output."""
        return self._need(["exec", pod, "--", *command])

    def _need(self, words: Sequence[str], text: str | None = None) -> str:
        done = self._kubectl(words, text=text, capture=True)
        if done.returncode:
            raise DeployError(f"kubectl {' '.join(words[:3])}: {_last_line(done.stderr)}")
        return done.stdout

    def _show(self, words: Sequence[str], text: str | None, fine: Sequence[int] = (0,)) -> int:
        done = self._kubectl(words, text=text)
        if done.returncode not in fine:
            raise DeployError(f"kubectl {words[0]} failed; see its output above")
        return done.returncode

    def _kubectl(
        self, words: Sequence[str], *, text: str | None = None, capture: bool = False
    ) -> "subprocess.CompletedProcess[str]":
        # Manifests name their namespaces, which may be others as well.
        options = self._options[:1] if "--filename=-" in words else self._options
        command = ["kubectl", *options, *words]
        return subprocess.run(command, input=text, capture_output=capture, text=True, check=False)


def _ask(words: Sequence[str]) -> str:
    done = subprocess.run(["kubectl", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise MisuseError(f"kubectl {words[0]}: {_last_line(done.stderr)}")
    return done.stdout


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
