"""Kubernetes and OpenShift: the workload is a Job in the cluster, on the agent's own node, which so samples it."""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from gpuagent.environments.environment import Ending, EnvironmentUnavailableError, Image, Job, Launch
from gpuagent.environments.support import job_client
from gpuagent.environments.support.clients import ClientError, ask_client, need_program
from gpuagent.environments.support.images import need_name
from gpuagent.environments.support.inside import (
    PYTHON,
    explain_inside,
    has_nvidia_gpu,
    signal_of_shell_code,
    site_words,
)
from gpuagent.environments.support.job_manifest import Site, job_manifest, job_name
from gpuagent.environments.support.limits import refuse_changes
from gpuagent.environments.support.proc import has_run, iterate_outside
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.limits import Limits

# The node's name in the cluster: in a pod, from the field spec.nodeName. It is the option --node-name, too.
NODE_VARIABLE = "GPUAGENT_NODE_NAME"

# Less than the supervisor allows for a command afterwards.
_DELETE_SECONDS = 50


class Kubernetes:
    """Runs as a Job. GPUAGENT_KUBERNETES is the client and its own options, as `oc --namespace gpu`,
    GPUAGENT_KUBERNETES_ARGS says more of the pod, as `--gpus 2 --runtime-class nvidia`."""

    name = "kubernetes"
    python: str | None = PYTHON
    has_image_paths = False

    def check(self) -> None:
        """See whether this user may make Jobs.

        Raises:
            EnvironmentUnavailableError: they may not, there is no client, or the node's name is not known.
        """
        client = _client()
        need_program(client[0], "install a client of kubernetes, kubectl or oc; GPUAGENT_KUBERNETES says which")
        if "KUBERNETES_SERVICE_HOST" in os.environ and not _site_options().node:
            remedy = f"set {NODE_VARIABLE} from the field spec.nodeName; kubernetes then runs Jobs where this agent is"
            raise EnvironmentUnavailableError("the agent is in a pod and does not know its node", remedy)
        try:
            ask_client([*client, "auth", "can-i", "create", "jobs.batch"])
        except ClientError as error:
            remedy = (
                f"see what `{shlex.join(client)} auth can-i create jobs.batch` says; kubernetes needs a role for it"
            )
            raise EnvironmentUnavailableError(f"this user may not create Jobs: {error}", remedy) from error

    def find_image(self, name: str | None) -> Image:
        """Return the image called `name`, which the node pulls where it lacks it. Nothing more is known of it here.

        Raises:
            MisuseError: there is no name.
        """
        return Image(name=need_name(self.name, name, "IMAGE"), digest=None, architecture=None, size_bytes=None)

    def check_limits(self, limits: Limits) -> None:
        """See whether it can keep `limits`: all but changes.

        Raises:
            MisuseError: it cannot.
        """
        refuse_changes(self.name, limits)

    def launch(self, job: Job) -> Launch:
        """Return how `job` is started as a Job that is named after its run, and how that is deleted."""
        return self._launch(job, _site())

    def launch_beside(self, job: Job) -> Launch:
        """Return how `job` is started, as a Job without GPUs: they are handed out one by one."""
        return self._launch(job, replace(_site(), gpus=0))

    def exit_code(self, code: int) -> int:
        """Return the program's exit code: kubelet says 128 + its number for a signal."""
        return signal_of_shell_code(code)

    def explain(self, ending: Ending) -> str | None:
        """Return, in words, why the Job failed."""
        said = [line for line in ending.stderr.splitlines() if line.startswith(job_client.PREFIX)]
        if not said:
            return explain_inside(ending)
        reason = said[-1].removeprefix(job_client.PREFIX)
        if reason.startswith("OOMKilled"):
            return "the kernel ended it for lack of memory: it reached the container's limit"
        remedy = "; see 'Where no directory may be shared' in docs/environments.md" if _is_forbidden(reason) else ""
        return f"kubernetes: {reason}{remedy}"

    def _launch(self, job: Job, site: Site) -> Launch:
        if job.image is None:
            raise MisuseError(f"{self.name} needs an image")
        client, name = _client(), job_name(job.run_id)
        manifest = json.dumps(job_manifest(job, site))
        delete = ["delete", "job", name, "--ignore-not-found", "--cascade=foreground", f"--timeout={_DELETE_SECONDS}s"]
        return Launch(
            command=[sys.executable, "-I", "-S", job_client.__file__, manifest, *client],
            afterwards=[[*client, *delete]],
            find_root=partial(find_pod, job.run_id),
        )


def find_pod(run_id: str) -> int | None:
    """Return the first process of a run's pod; None: there is none, or none that this process can see."""
    for pid, ancestors in iterate_outside(run_id):
        if not (ancestors and has_run(ancestors[0].pid, run_id)):
            return pid
    return None


def _is_forbidden(reason: str) -> bool:
    return "forbidden" in reason.lower()


def _client() -> list[str]:
    return site_words("GPUAGENT_KUBERNETES") or ["kubectl"]


def _site() -> Site:
    options = _site_options()
    return Site(
        node=options.node or os.uname().nodename,
        gpus=int(has_nvidia_gpu()) if options.gpus is None else options.gpus,
        gpu_resource=options.gpu_resource,
        pod=_pod_options(vars(options)),
    )


def _pod_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those fields of a pod's specification that are the site's."""
    fields = {"runtimeClassName": given["runtime_class"], "serviceAccountName": given["service_account"]}
    secrets = {"imagePullSecrets": [{"name": name} for name in given["pull_secret"]]} if given["pull_secret"] else {}
    return {**{name: value for name, value in fields.items() if value}, **secrets}


class _SiteParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise GpuAgentError(f"GPUAGENT_KUBERNETES_ARGS cannot be read: {message}")


def _site_options(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = _SiteParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--node", default=os.environ.get(NODE_VARIABLE))
    parser.add_argument("--gpus", type=int)
    parser.add_argument("--gpu-resource", default="nvidia.com/gpu")
    parser.add_argument("--runtime-class")
    parser.add_argument("--service-account")
    parser.add_argument("--pull-secret", action="append")
    return parser.parse_args(site_words("GPUAGENT_KUBERNETES_ARGS") if words is None else words)
