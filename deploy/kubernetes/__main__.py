"""Deploy agents, and a collector for them, to a Kubernetes cluster: `python3 -m deploy.kubernetes`, which make calls.

Nothing outside of Python's standard library is needed, and kubectl. docs/deploy/kubernetes.md tells more.
"""

import argparse
import sys
from pathlib import Path

from deploy.kubernetes import credentials
from deploy.kubernetes.cluster import NAMESPACE, Cluster, find_context, need_kubectl, render
from deploy.kubernetes.composition import SERVICE, Deployment, composed, overlays
from deploy.kubernetes.problems import DeployError, MisuseError

_AGENTS = "daemonset/gpuagent-agent"
_COLLECTOR = "statefulset/gpuagent-collector"
_ROLLOUT_SECONDS = 600
"""A new node pulls the images and waits for its GPU driver."""


def main() -> int:
    """Do what the command line says; return the exit code: 0 done, 1 failed, 2 misuse, 130 interrupted."""
    given = _parser().parse_args()
    try:
        need_kubectl()
        _ACTIONS[given.action](_deployment(given), given)
    except DeployError as error:
        print(f"deploy: {error}", file=sys.stderr)
        return 2 if isinstance(error, MisuseError) else 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="deploy", description=(__doc__ or "").split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("action", choices=_ACTIONS)
    parser.add_argument("--overlay", default="generic", help=f"{', '.join(overlays())} (default: generic)")
    parser.add_argument("--context", help="of kubectl; without it the current one, after asking on a terminal")
    parser.add_argument("--registry", help="where the images are, as us-docker.pkg.dev/PROJECT/REPOSITORY")
    parser.add_argument("--tag", help="of the images; by default this version's")
    parser.add_argument("--platform", help="what comparisons call this cluster (default: kubernetes)")
    parser.add_argument("--collector", metavar="HOST:PORT", help="one elsewhere; by default one in the cluster")
    parser.add_argument("--token-file", type=Path, help="with --collector: its token for agents")
    parser.add_argument("--ca-file", type=Path, help="with --collector: its CA certificate")
    parser.add_argument(
        "--certificates", choices=("own", "cert-manager"), default="own", help="who makes the collector's"
    )
    parser.add_argument("--host", default="", metavar="NAME,…", help="more names for the collector's own certificate")
    return parser


def _deployment(given: argparse.Namespace) -> Deployment:
    return Deployment(
        overlay=given.overlay,
        registry=given.registry,
        tag=given.tag,
        platform=given.platform,
        collector=given.collector,
        cert_manager=given.certificates == "cert-manager",
    )


def _render(deployment: Deployment, *, with_namespace: bool = True) -> str:
    with composed(deployment, with_namespace=with_namespace) as folder:
        return render(folder)


def _print(deployment: Deployment, _given: argparse.Namespace) -> None:
    print(_render(deployment), end="")


def _diff(deployment: Deployment, given: argparse.Namespace) -> None:
    cluster = _cluster(deployment, given)
    if not cluster.diff(_render(deployment)):
        print("nothing would change")


def _deploy(deployment: Deployment, given: argparse.Namespace) -> None:
    manifests = _render(deployment)
    cluster = _cluster(deployment, given)
    # Secrets need it, and the collector needs Secrets.
    cluster.apply(f'{{"apiVersion": "v1", "kind": "Namespace", "metadata": {{"name": "{NAMESPACE}"}}}}')
    if deployment.collector:
        credentials.copy_given(cluster, given.token_file, given.ca_file)
    elif not deployment.cert_manager:
        credentials.make_certificate(cluster, [name for name in given.host.split(",") if name])
    cluster.apply(manifests)
    if not deployment.collector:
        cluster.wait_for(_COLLECTOR, _ROLLOUT_SECONDS)
        credentials.make_token(cluster)
    cluster.wait_for(_AGENTS, _ROLLOUT_SECONDS)
    _tell(deployment, cluster)


def _tell(deployment: Deployment, cluster: Cluster) -> None:
    agents = cluster.field(_AGENTS, "{.status.desiredNumberScheduled}")
    print(f"\n{agents} nodes have an agent")
    if agents == "0":
        print(f"the overlay {deployment.overlay} takes GPU nodes only, and finds none: see docs/deploy/kubernetes.md")
    if not deployment.collector:
        inside = f"kubectl --context={cluster.context.name} --namespace={NAMESPACE} exec {credentials.COLLECTOR_POD}"
        print(f"see them: {inside} -- collector nodes")


def _undeploy(deployment: Deployment, given: argparse.Namespace) -> None:
    cluster = _cluster(deployment, given)
    cluster.delete(_render(deployment, with_namespace=False))
    print(
        f"\nkept: the store's volume and the Secrets. To delete them with everything that was measured:\n"
        f"  kubectl --context={cluster.context.name} delete namespace {NAMESPACE}"
    )


def _cluster(deployment: Deployment, given: argparse.Namespace) -> Cluster:
    """Return the cluster that the user means, said and, unless they named it, confirmed."""
    context = find_context(given.context)
    print(f"context   {context.name}")
    print(f"server    {context.server}")
    print(f"overlay   {deployment.overlay}")
    print(f"images    {deployment.registry or 'of the nodes themselves (no REGISTRY)'}")
    print(f"collector {deployment.collector or SERVICE}", flush=True)
    if not given.context:
        _confirm(context.name)
    cluster = Cluster(context)
    cluster.need_answer()
    return cluster


def _confirm(name: str) -> None:
    if not sys.stdin.isatty():
        raise MisuseError(f"say which cluster is meant; {name} is only kubectl's current context: CONTEXT={name}")
    try:
        answer = input("is that the cluster you mean? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise MisuseError("nothing was touched; name another by CONTEXT=…")


_ACTIONS = {"render": _print, "diff": _diff, "deploy": _deploy, "undeploy": _undeploy}

if __name__ == "__main__":
    sys.exit(main())
