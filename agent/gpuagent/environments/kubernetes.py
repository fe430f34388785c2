"""Kubernetes and OpenShift: the workload is a Job on the agent's own node, so that the agent samples it."""

import argparse
import json
import os
import shlex
import sys
from dataclasses import replace
from functools import partial
from typing import NoReturn

from gpuagent.environments.environment import Ending, EnvironmentUnavailableError, Image, Job, Launch
from gpuagent.environments.support import job_client
from gpuagent.environments.support.clients import ClientError, ask_client, find_processes, has_run, need_program
from gpuagent.environments.support.images import need_name
from gpuagent.environments.support.inside import Container, has_nvidia_gpu, site_words
from gpuagent.environments.support.job_manifest import Site, job_manifest, job_name
from gpuagent.environments.support.limits import refuse_changes
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.limits import Limits

# The node's name in the cluster: in a pod, from the field spec.nodeName. It is also the option --node-name.
NODE_VARIABLE = "GPUAGENT_NODE_NAME"

# Less than the supervisor allows for a command afterwards.
_DELETE_SECONDS = 50


class Kubernetes(Container):
    """Runs as a Job.

    GPUAGENT_KUBERNETES is the client with its own options, such as `oc --namespace gpu`; GPUAGENT_KUBERNETES_ARGS are
    options of the pod, such as `--gpus 2 --runtime-class nvidia`.
    """

    name = "kubernetes"

    def check(self) -> None:
        """Check that this user may make Jobs."""
        client = _client()
        need_program(client[0], "install a client of kubernetes, kubectl or oc, or name one in GPUAGENT_KUBERNETES")
        if "KUBERNETES_SERVICE_HOST" in os.environ and not _site_options().node:
            remedy = f"set {NODE_VARIABLE} from the field spec.nodeName; kubernetes then runs Jobs on the agent's node"
            raise EnvironmentUnavailableError("the agent is in a pod and does not know its node", remedy)
        question = [*client, "auth", "can-i", "create", "jobs.batch"]
        try:
            ask_client(question)
        except ClientError as error:
            remedy = f"see the output of `{shlex.join(question)}`; kubernetes needs a role for it"
            raise EnvironmentUnavailableError(f"this user may not create Jobs: {error}", remedy) from error

    def find_image(self, name: str | None) -> Image:
        """Return the image called `name`, which the node pulls if it lacks it; its properties are unknown here."""
        return Image(name=need_name(self.name, name, "IMAGE"), digest=None, architecture=None, size_bytes=None)

    def check_limits(self, limits: Limits) -> None:
        """Check that `limits` hold no changes."""
        refuse_changes(self.name, limits)

    def launch(self, job: Job) -> Launch:
        """Return the command that runs `job` as a Job named after its run, and the one that deletes it."""
        return self._launch(job, _site())

    def launch_beside(self, job: Job) -> Launch:
        """Return the command that runs a neighbour as a Job without GPUs: they are handed out one by one."""
        return self._launch(job, replace(_site(), gpus=0))

    def explain_own(self, ending: Ending) -> str | None:
        """Return the cluster's reason."""
        reported = [line for line in ending.stderr.splitlines() if line.startswith(job_client.PREFIX)]
        if not reported:
            return super().explain_own(ending)
        reason = reported[-1].removeprefix(job_client.PREFIX)
        if reason.startswith("OOMKilled"):
            return f"{ending.memory_limit} ran out, and the kernel ended it"
        is_forbidden = "forbidden" in reason.lower()
        remedy = "; see 'Where no directory may be shared' in docs/environments.md" if is_forbidden else ""
        return f"kubernetes: {reason}{remedy}"

    def _launch(self, job: Job, site: Site) -> Launch:
        manifest = json.dumps(job_manifest(job, self.image_of(job), site))
        delete = ["delete", "job", job_name(job.run_id), "--ignore-not-found", "--cascade=foreground"]
        return Launch(
            command=[sys.executable, "-I", "-S", job_client.__file__, manifest, *_client()],
            afterwards=[[*_client(), *delete, f"--timeout={_DELETE_SECONDS}s"]],
            find_root=partial(find_pod, job.run_id),
        )


def find_pod(run_id: str) -> int | None:
    """Return the first process of a run's pod; None: there is no such process, or it cannot be seen from here."""
    for pid, ancestors in find_processes(run_id):
        if not (ancestors and has_run(ancestors[0][0], run_id)):
            return pid
    return None


def _client() -> list[str]:
    return site_words("GPUAGENT_KUBERNETES") or ["kubectl"]


def _site() -> Site:
    options = _site_options()
    fields = {
        "runtimeClassName": options.runtime_class,
        "serviceAccountName": options.service_account,
        "imagePullSecrets": [{"name": name} for name in options.pull_secret],
    }
    return Site(
        node=options.node or os.uname().nodename,
        gpus=int(has_nvidia_gpu()) if options.gpus is None else options.gpus,
        gpu_resource=options.gpu_resource,
        pod={name: value for name, value in fields.items() if value},
    )


class _SiteParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise GpuAgentError(f"cannot read GPUAGENT_KUBERNETES_ARGS: {message}")


def _site_options() -> argparse.Namespace:
    parser = _SiteParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--node", default=os.environ.get(NODE_VARIABLE))
    parser.add_argument("--gpus", type=int)
    parser.add_argument("--gpu-resource", default="nvidia.com/gpu")
    parser.add_argument("--runtime-class")
    parser.add_argument("--service-account")
    parser.add_argument("--pull-secret", action="append", default=[])
    return parser.parse_args(site_words("GPUAGENT_KUBERNETES_ARGS"))
