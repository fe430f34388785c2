"""Kubernetes and OpenShift: the workload is a Job, which the agent of its node follows, or which measures itself."""

import argparse
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import psutil

from gpuagent import __version__
from gpuagent.environments.environment import (
    GRACE_SECONDS,
    Elsewhere,
    Ending,
    EnvironmentUnavailableError,
    Home,
    Image,
    Job,
    Launch,
    Span,
)
from gpuagent.environments.support import job_client
from gpuagent.environments.support.common import (
    ClientError,
    Container,
    ask_client,
    find_processes,
    has_nvidia_gpu,
    has_run,
    need_name,
    need_program,
    read_run_file,
    refuse_changes,
    site_words,
)
from gpuagent.environments.support.job_manifest import (
    DELIVER_SECONDS,
    SELF_GRACE_SECONDS,
    Site,
    job_manifest,
    job_name,
    meeting_point,
    pod_spec,
    service_manifest,
)
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.limits import Limits

# The node's name in the cluster: in a pod, from the field spec.nodeName. It is also the option --node-name.
NODE_VARIABLE = "GPUAGENT_NODE_NAME"


def report_name(index: int = 0) -> str:
    """Return the name of the file in the run directory with what the client learned of a Job's pod."""
    return f"pod-{index}.json"


# The user of the project's own images. OpenShift refuses it, and chooses one itself.
_USER = 65532

# More than the client learns of a pod.
_LEARNED_BYTES = 1024 * 1024


class Kubernetes(Container):
    """Runs as a Job.

    GPUAGENT_KUBERNETES is the client with its own options, such as `oc --namespace gpu`; GPUAGENT_KUBERNETES_ARGS are
    options of the pod, such as `--gpus 2 --runtime-class nvidia`.
    """

    name = "kubernetes"
    may_be_elsewhere = True

    def check(self) -> None:
        """Check that this user may make Jobs."""
        client = _client()
        need_program(client[0], "install a client of kubernetes, kubectl or oc, or name one in GPUAGENT_KUBERNETES")
        question = [*client, "auth", "can-i", "create", "jobs.batch"]
        try:
            ask_client(question)
        except ClientError as error:
            asked = shlex.join(question)
            remedy = f"see the output of `{asked}`: after `no` ask for a role, else log in or set KUBECONFIG"
            raise EnvironmentUnavailableError(f"this user may not create Jobs: {error}", remedy) from error

    def find_image(self, name: str | None) -> Image:
        """Return the image called `name`, which the node pulls if it lacks it; its properties are unknown here."""
        return Image(name=need_name(self.name, name, "IMAGE"), digest=None, architecture=None, size_bytes=None)

    def check_limits(self, limits: Limits) -> None:
        """Check that `limits` hold no changes."""
        refuse_changes(self.name, limits)

    def find_elsewhere(self, job: Job, home: Home) -> Elsewhere | None:
        """Return where `job` measures itself; None: the agent is on the cluster's node, and may share folders there.

        Raises:
            MisuseError: a pod cannot reach the collector.
            GpuAgentError: the namespace admits no pod of this job.
        """
        options = _site_options(job.options)
        reason = _why_not_followed(options, job, self.image_of(job))
        if reason is None:
            return None
        home = replace(home, collector=options.collector or home.collector, platform=options.platform or home.platform)
        if re.match(r"(localhost|127\.|\[?::1\]?:)", home.collector):
            raise MisuseError(
                f"a pod cannot reach the collector at {home.collector}; "
                "name its address there: GPUAGENT_KUBERNETES_ARGS='--collector HOST:PORT'"
            )
        users = [options.user] if options.user is not None else [_USER, None]
        if options.user is None and any(name.startswith("OPENSHIFT_") for name in os.environ):
            # The agent's own constraint would admit a user that the Job's pod may not have.
            users = [None]
        for user in users:
            elsewhere = Elsewhere(reason=reason, user=user, home=home)
            refusal = _refusal(replace(job, elsewhere=elsewhere), self.image_of(job), _site(options, job))
            if refusal is None:
                return elsewhere
        raise GpuAgentError(f"the namespace admits no pod of this run: {refusal}")

    def meeting_point(self, run_id: str) -> str:
        """Return HOST:PORT of the first pod's Service."""
        return meeting_point(run_id)

    def launch(self, job: Job) -> Launch:
        """Return the command that runs `job` as a Job named after its run, and the one that deletes it."""
        return self._launch(job, _site(_site_options(job.options), job))

    def launch_beside(self, job: Job) -> Launch:
        """Return the command that runs a neighbour as a Job without GPUs: they are handed out one by one."""
        return self._launch(job, replace(_site(_site_options(job.options), job), gpus=0))

    def find_span(self, run_directory: Path) -> Span:
        """Return when the end of the pod's program was seen: its Job is deleted some time later."""
        return Span(ended_unix_nano=read_learned(run_directory / report_name()).get("ended_unix_nano"))

    def explain_own(self, ending: Ending) -> str | None:
        """Return the cluster's reason."""
        reported = [line for line in ending.stderr.splitlines() if line.startswith(job_client.PREFIX)]
        if not reported:
            return super().explain_own(ending)
        reason = reported[-1].removeprefix(job_client.PREFIX)
        if reason.startswith("OOMKilled"):
            return f"{ending.memory_limit} ran out, and the kernel ended it"
        if reason.startswith("StartError"):
            return f"the image cannot start the program: {reason.rpartition('exec: ')[2]}"
        return f"kubernetes: {job_client.short_reason(reason)}"

    def _launch(self, job: Job, site: Site) -> Launch:
        reports = [str(job.run_directory / report_name(index)) for index in range(job.nodes)]
        task: dict[str, Any] = {"job": job_manifest(job, self.image_of(job), site), "reports": reports}
        if job.nodes > 1:
            task["service"] = service_manifest(job.run_id)
        if job.elsewhere:
            home = job.elsewhere.home
            settings = {
                "collector": home.collector,
                "platform": home.platform,
                "rate_hz": home.rate_hz,
                "labels": dict(home.labels),
                "deliver_seconds": DELIVER_SECONDS,
                "plan": job.elsewhere.plan,
            }
            files = {"token": home.token_file}
            if home.tls:
                files["ca.crt"] = home.tls.ca
                if home.tls.certificate and home.tls.key:
                    files |= {"client.crt": home.tls.certificate, "client.key": home.tls.key}
            task["secret"] = {
                "settings.json": {"text": json.dumps(settings)},
                **{name: {"file": str(path.absolute())} for name, path in files.items()},
            }
            task["measured"] = f"the pod measures itself: {job.elsewhere.reason}"
        program = [sys.executable, "-I", "-S", job_client.__file__]
        return Launch(
            command=[*program, "make", json.dumps(task), *_client()],
            afterwards=[[*program, "delete", job_name(job.run_id), *_client()]],
            find_root=(lambda: None) if job.elsewhere else partial(find_pod, job.run_id, Path(reports[0])),
            root_is_program=True,
            passes_signals=True,
            grace_seconds=SELF_GRACE_SECONDS if job.elsewhere else GRACE_SECONDS,
        )


def find_pod(run_id: str, report: Path) -> int | None:
    """Return the first process of a run's pod; None: there is no such process, or it cannot be seen from here.

    An agent without capabilities may not read the variables of a pod's processes, but everybody may read their groups.
    """
    if container := str(read_learned(report).get("container_id") or "").rpartition("/")[2]:
        # Of all processes in its control group, the one that the others descend from.
        parents: dict[int, int] = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if container in Path(f"{psutil.PROCFS_PATH}/{process.pid}/cgroup").read_text():
                    parents[process.pid] = process.ppid()
        return min((pid for pid, parent in parents.items() if parent not in parents), default=None)
    for pid, ancestors in find_processes(run_id):
        if not (ancestors and has_run(ancestors[0][0], run_id)):
            return pid
    return None


def read_learned(report: Path) -> Mapping[str, Any]:
    """Return what the client learned of a Job's pod; empty: nothing yet."""
    try:
        learned: Mapping[str, Any] = json.loads(read_run_file(report, 0, _LEARNED_BYTES))
    except ValueError:
        return {}
    return learned


def _why_not_followed(options: argparse.Namespace, job: Job, image: Image) -> str | None:
    """Return why the agent on this machine cannot follow a job's pod; None: it can."""
    if options.measured_by:
        return None if options.measured_by == "node" else "GPUAGENT_KUBERNETES_ARGS say so"
    if not options.node:
        if "KUBERNETES_SERVICE_HOST" in os.environ:
            return f"the agent does not know its node; {NODE_VARIABLE} names it"
        try:
            ask_client([*_client(), "get", "node", os.uname().nodename, "--output=name"])
        except ClientError:
            return "this machine is no node of the cluster, as far as this user can see"
    return _refusal(job, image, _site(options, job))


def _refusal(job: Job, image: Image, site: Site) -> str | None:
    metadata = {"name": job_name(job.run_id)}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(job, image, site)}
    words = ["create", "--dry-run=server", "--output=name", "--filename=-"]
    done = subprocess.run(
        [*_client(), *words], input=json.dumps(pod), capture_output=True, text=True, timeout=60, check=False
    )
    return job_client.short_reason(done.stderr.strip() or "no reason is given") if done.returncode else None


def _client() -> list[str]:
    return site_words("GPUAGENT_KUBERNETES") or ["kubectl"]


def _site(options: argparse.Namespace, job: Job) -> Site:
    fields = {
        "runtimeClassName": options.runtime_class,
        "serviceAccountName": options.service_account,
        "priorityClassName": options.priority,
        "nodeSelector": dict(options.node_selector),
        "imagePullSecrets": [{"name": name} for name in options.pull_secret],
    }
    # The GPUs of another node are not known here, so that none is requested without a word.
    is_own_node = job.elsewhere is None or options.node == os.environ.get(NODE_VARIABLE, "")
    gpus = int(has_nvidia_gpu()) if options.gpus is None and is_own_node else options.gpus or 0
    folder, slash, _ = (job.image.name if job.image else "").rpartition("/")
    return Site(
        # Several nodes are several others than this one.
        node=None if job.nodes > 1 else options.node or (os.uname().nodename if job.elsewhere is None else None),
        gpus=gpus,
        gpu_resource=options.gpu_resource,
        tolerations=options.toleration,
        claims=options.volume,
        pod={name: value for name, value in fields.items() if value},
        agent_image=options.agent_image or f"{folder}{slash}gpuagent-agent:{__version__}",
    )


class _SiteParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise GpuAgentError(f"cannot read GPUAGENT_KUBERNETES_ARGS: {message}")


def _site_options(more: Sequence[str]) -> argparse.Namespace:
    parser = _SiteParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--measured-by", choices=("node", "pod"))
    parser.add_argument("--node", default=os.environ.get(NODE_VARIABLE))
    parser.add_argument("--node-selector", action="append", type=_pair, default=[], metavar="LABEL=VALUE")
    parser.add_argument("--toleration", action="append", type=_toleration, default=[], metavar="KEY[=VALUE][:EFFECT]")
    parser.add_argument("--priority")
    parser.add_argument("--volume", action="append", type=_claim, default=[], metavar="CLAIM:/PATH[:ro]")
    parser.add_argument("--gpus", type=int)
    parser.add_argument("--gpu-resource", default="nvidia.com/gpu")
    parser.add_argument("--runtime-class")
    parser.add_argument("--service-account")
    parser.add_argument("--pull-secret", action="append", default=[])
    parser.add_argument("--user", type=int)
    parser.add_argument("--agent-image")
    parser.add_argument("--collector")
    parser.add_argument("--platform")
    return parser.parse_args([*site_words("GPUAGENT_KUBERNETES_ARGS"), *more])


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not LABEL=VALUE")
    return name, value


def _toleration(text: str) -> dict[str, str]:
    taint, _, effect = text.partition(":")
    key, equals, value = taint.partition("=")
    matched = {"operator": "Equal", "value": value} if equals else {"operator": "Exists"}
    return {"key": key, **matched, **({"effect": effect} if effect else {})}


def _claim(text: str) -> tuple[str, str, bool]:
    claim, _, place = text.partition(":")
    path, _, mode = place.partition(":")
    if not claim or not path.startswith("/") or mode not in ("", "ro"):
        raise argparse.ArgumentTypeError(f"{text!r} is not CLAIM:/PATH or CLAIM:/PATH:ro")
    return claim, path, mode == "ro"
