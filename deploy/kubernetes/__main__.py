"""Deploy agents and their collector to a Kubernetes cluster: `python3 -m deploy.kubernetes`, called by make.

Needs kubectl, and Python's standard library alone. See docs/deploy/kubernetes.md.
"""

import argparse
import sys
from pathlib import Path

from deploy.kubernetes import credentials
from deploy.kubernetes.cluster import NAMESPACE, Cluster, find_context, need_kubectl, render
from deploy.kubernetes.composition import (
    COLLECTOR,
    SERVICE,
    Deployment,
    Lake,
    Retention,
    compose,
    only,
    overlays,
    without,
)
from deploy.kubernetes.problems import DeployError, MisuseError, confirm

_AGENTS = "daemonset/gpuagent-agent"
# A new node pulls the images and waits for its GPU driver.
_ROLLOUT_SECONDS = 600


def main() -> int:
    """Run the command line; return the exit code: 0 done, 1 failed, 2 misuse, 130 interrupted."""
    parser = argparse.ArgumentParser(prog="deploy", description=(__doc__ or "").split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("action", choices=_ACTIONS)
    parser.add_argument("--overlay", default="generic", help=f"{', '.join(overlays())} (default: generic)")
    parser.add_argument("--context", help="kubectl's context (default: the current one, after confirmation)")
    parser.add_argument("--registry", help="registry of the images, such as us-docker.pkg.dev/PROJECT/REPOSITORY")
    parser.add_argument("--tag", help="tag of the images (default: this version's)")
    parser.add_argument("--platform", help="the cluster's name in comparisons (default: kubernetes)")
    parser.add_argument("--collector", metavar="HOST:PORT", help="collector elsewhere (default: one in the cluster)")
    parser.add_argument("--token-file", type=Path, help="with --collector: its token for agents")
    parser.add_argument("--ca-file", type=Path, help="with --collector: its CA certificate")
    parser.add_argument(
        "--certificates", choices=("own", "cert-manager"), default="own", help="maker of the collector's certificate"
    )
    parser.add_argument("--host", default="", metavar="NAME,…", help="more names for the collector's own certificate")
    parser.add_argument("--mutual-tls", choices=("yes", "no"), default="no", help="require client certificates")
    parser.add_argument(
        "--launch", choices=("yes", "no"), default="no", help="let agents make Jobs for `collector launch`"
    )
    parser.add_argument("--pods", choices=("yes", "no"), default="no", help="let agents read pods' names and owners")
    parser.add_argument("--keep-raw", metavar="TIME", help="thin older samples out to one row a second, such as 7d")
    parser.add_argument("--keep-seconds", metavar="TIME", help="thin older samples out to one row a minute")
    parser.add_argument("--keep", metavar="TIME", help="remove older samples; runs keep their figures")
    group = parser.add_argument_group("several collectors on one lake (docs/deploy/scale.md)")
    group.add_argument("--store", metavar="ducklake:postgres:…", help="its catalog, without a password")
    group.add_argument("--data", metavar="s3://BUCKET/PATH", help="place of its files")
    group.add_argument("--lake-file", type=Path, help="NAME=VALUE lines with the passwords of both: PGPASSWORD, AWS_…")
    group.add_argument("--replicas", type=int, metavar="N", help="number of collectors (default: 3)")
    given = parser.parse_args()
    try:
        need_kubectl()
        _ACTIONS[given.action](
            Deployment(
                overlay=given.overlay,
                registry=given.registry,
                tag=given.tag,
                platform=given.platform,
                collector=given.collector,
                cert_manager=given.certificates == "cert-manager",
                mutual_tls=given.mutual_tls == "yes",
                launch=given.launch == "yes",
                pods=given.pods == "yes",
                lake=Lake(store=given.store, data=given.data, replicas=given.replicas),
                retention=Retention(keep_raw=given.keep_raw, keep_seconds=given.keep_seconds, keep=given.keep),
            ),
            given,
        )
    except DeployError as error:
        print(f"deploy: {error}", file=sys.stderr)
        return 2 if isinstance(error, MisuseError) else 1
    except KeyboardInterrupt:
        return 130
    return 0


def _render(deployment: Deployment, *, with_namespace: bool = True) -> str:
    with compose(deployment, with_namespace=with_namespace) as folder:
        return render(folder)


def _complete(deployment: Deployment) -> str:
    if deployment.has_several_collectors:
        deployment.lake.need_store()
    return _render(deployment)


def _print(deployment: Deployment, _given: argparse.Namespace) -> None:
    print(_complete(deployment), end="")


def _diff(deployment: Deployment, given: argparse.Namespace) -> None:
    manifests = _complete(deployment)
    if not _cluster(deployment, given).diff(manifests):
        print("nothing would change")


def _deploy(deployment: Deployment, given: argparse.Namespace) -> None:
    manifests = _complete(deployment)
    cluster = _cluster(deployment, given)
    other = "statefulset" if deployment.has_several_collectors else "deployment"
    if not deployment.collector and cluster.has(other, COLLECTOR):
        raise MisuseError(
            f"there is a {other} {COLLECTOR} with another store; move its data and remove it first, "
            "see docs/deploy/scale.md"
        )
    # Secrets need the namespace, the collector needs Secrets, and agents a token that the collector makes.
    cluster.apply(only(manifests, "Namespace"))
    if deployment.collector:
        credentials.copy_given(cluster, given.token_file, given.ca_file)
        if deployment.mutual_tls:
            credentials.need_client_certificate(cluster)
    else:
        if deployment.has_several_collectors:
            credentials.copy_lake_variables(cluster, given.lake_file)
            credentials.make_owner_and_token(cluster)
        if not deployment.cert_manager:
            hosts = [name for name in given.host.split(",") if name]
            credentials.make_certificates(cluster, hosts, for_clients=deployment.mutual_tls)
    cluster.apply(without(manifests, "DaemonSet"))
    if not deployment.collector:
        cluster.wait_for(deployment.collectors, _ROLLOUT_SECONDS)
        if not deployment.has_several_collectors:
            credentials.make_token(cluster)
    cluster.apply(only(manifests, "DaemonSet"))
    cluster.wait_for(_AGENTS, _ROLLOUT_SECONDS)
    agents = cluster.field(_AGENTS, "{.status.desiredNumberScheduled}")
    print(f"\n{agents} nodes have an agent")
    if agents == "0":
        print(f"the overlay {deployment.overlay} is for GPU nodes only, and found none; see docs/deploy/kubernetes.md")
    if not deployment.collector:
        inside = f"kubectl --context={cluster.context.name} --namespace={NAMESPACE} exec {deployment.collectors}"
        print(f"list them: {inside} -- collector nodes")


def _undeploy(deployment: Deployment, given: argparse.Namespace) -> None:
    cluster = _cluster(deployment, given)
    cluster.delete(_render(deployment, with_namespace=False))
    # Objects made with other variables: one collector or several, ConfigMaps with a hash in their names.
    cluster.delete_labelled("statefulset,deployment,cronjob,configmap", "app.kubernetes.io/name=gpuagent")
    store = "the lake itself is yours" if deployment.has_several_collectors else "the store's volume"
    print(
        f"\nkept: {store}, and the Secrets. To delete the rest:\n"
        f"  kubectl --context={cluster.context.name} delete namespace {NAMESPACE}"
    )


def _cluster(deployment: Deployment, given: argparse.Namespace) -> Cluster:
    context = find_context(given.context)
    print(f"context   {context.name}")
    print(f"server    {context.server}")
    print(f"overlay   {deployment.overlay}")
    print(f"images    {deployment.registry or 'of the nodes themselves (no REGISTRY)'}")
    print(f"collector {deployment.collector or SERVICE}", flush=True)
    if not given.context:
        if not sys.stdin.isatty():
            raise MisuseError(
                f"{context.name} is only kubectl's current context; to use it, give CONTEXT={context.name}"
            )
        if not confirm("use this cluster?"):
            raise MisuseError("nothing was changed; choose another cluster by CONTEXT=…")
    cluster = Cluster(context)
    cluster.need_answer()
    return cluster


_ACTIONS = {"render": _print, "diff": _diff, "deploy": _deploy, "undeploy": _undeploy}

if __name__ == "__main__":
    sys.exit(main())
