"""What `kubectl kustomize` makes of deploy/kubernetes: schemas, names that have to agree, and what pods may do."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import click
import kubernetes_validate
import pytest

import gpuagent
from gpuagent.cli import run as agent_run
from gpuagent.cli import start as agent_start
from gpuagent_collector.cli import nodes as collector_nodes
from gpuagent_collector.cli import serve as collector_serve
from tests.support.manifests import JOBS, KUSTOMIZATIONS, OVERLAYS, Container, containers, one, render, variables

pytestmark = pytest.mark.needs("kubectl")

VERSIONS = ("1.27", "1.31", "1.34", "1.37")
OF_OTHERS = {
    "SecurityContextConstraints": "security.openshift.io/v1",
    "Route": "route.openshift.io/v1",
    "Issuer": "cert-manager.io/v1",
    "Certificate": "cert-manager.io/v1",
}
"""Kinds that Kubernetes itself does not have."""

COMMANDS = {"gpuagent-agent": agent_start, "gpuagent-collector": collector_serve, "gpuagent-workloads": agent_run}

PRIVILEGED = {
    ("overlays/gke", "agent"): "GKE has no NVIDIA container runtime, and nvidia.com/gpu would take GPUs from users"
}
ROOT = {
    "agent": "the spool's folder on the host is root's, and so are RAPL's counters",
    "wait-for-driver": "a pod's security context is for all its containers",
}
HOST_PATHS = {
    "/var/lib/gpuagent": "the spool outlives the pod",
    "/home/kubernetes/bin/nvidia": "where GKE installs the driver's libraries",
    "/dev": "whether the driver has made its devices; seen by the init container alone",
}

SHELL_VARIABLES = {"LD_LIBRARY_PATH", "OPENSHIFT_NODE_NAME", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}
"""Variables that are for others than click: the linker, the container runtime, and facts/orchestrator.py."""


def documented_variables(command: click.Command) -> set[str]:
    found = {"GPUAGENT_RUNTIME_DIR"}
    for option in command.params:
        names = option.envvar or ()
        found |= {names} if isinstance(names, str) else set(names)
    return found


def all_containers() -> Sequence[Container]:
    return tuple(containers(*KUSTOMIZATIONS))


def pods(*kustomizations: str) -> Iterator[Container]:
    return (each for each in containers(*kustomizations) if each.spec is each.pod["containers"][0])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS)
def test_kubernetes_takes_every_manifest(kustomization: str, version: str) -> None:
    for manifest in render(kustomization):
        if manifest["kind"] not in OF_OTHERS:
            kubernetes_validate.validate(dict(manifest), version, strict=True)


def test_kinds_of_others_are_of_the_version_that_is_served() -> None:
    found = {each["kind"]: each["apiVersion"] for each in render("overlays/openshift")}
    assert {kind: found[kind] for kind in ("Route", "SecurityContextConstraints")}.items() <= OF_OTHERS.items()


def test_a_scc_has_the_fields_that_openshift_requires_and_allows_what_the_agents_ask_for() -> None:
    scc = one("overlays/openshift", "SecurityContextConstraints", "gpuagent-agent")
    required = {"allowHostDirVolumePlugin", "allowHostIPC", "allowHostNetwork", "allowHostPID", "allowHostPorts"}
    required |= {"allowPrivilegedContainer", "allowedCapabilities", "defaultAddCapabilities", "fsGroup", "runAsUser"}
    required |= {
        "readOnlyRootFilesystem",
        "requiredDropCapabilities",
        "seLinuxContext",
        "supplementalGroups",
        "volumes",
    }
    assert required <= scc.keys()
    (agent,) = (each for each in pods("overlays/openshift") if each.name == "agent")
    kinds = {kind for volume in agent.pod["volumes"] for kind in volume if kind != "name"}
    assert kinds <= set(scc["volumes"])
    assert scc["users"] == [f"system:serviceaccount:gpuagent:{agent.pod['serviceAccountName']}"]
    assert scc["allowHostPID"] is True
    assert scc["allowPrivilegedContainer"] is False


def test_routes_pass_tls_through_to_ports_of_the_collectors_service() -> None:
    service = one("overlays/openshift", "Service", "gpuagent-collector")
    routes = [each for each in render("overlays/openshift") if each["kind"] == "Route"]
    assert {route["spec"]["tls"]["termination"] for route in routes} == {"passthrough"}
    assert {route["spec"]["to"]["name"] for route in routes} == {"gpuagent-collector"}
    named = {port["name"] for port in service["spec"]["ports"]}
    assert {route["spec"]["port"]["targetPort"] for route in routes} <= named


def test_openshift_chooses_the_collectors_user_itself() -> None:
    (collector,) = (each for each in pods("overlays/openshift") if each.name == "collector")
    assert not {"runAsUser", "runAsGroup", "fsGroup"} & collector.pod["securityContext"].keys()
    assert collector.pod["securityContext"]["runAsNonRoot"] is True


def test_every_image_is_of_this_version() -> None:
    for container in all_containers():
        name, _, tag = container.spec["image"].partition(":")
        assert name in COMMANDS, container.label
        assert tag == gpuagent.__version__, container.label


def test_no_pod_may_more_than_is_listed_with_its_reason() -> None:
    for container in all_containers():
        context = {**container.pod["securityContext"], **container.spec["securityContext"]}
        privileged = (container.kustomization, container.name) in PRIVILEGED
        assert context.get("privileged", False) is privileged, container.label
        assert context["allowPrivilegeEscalation"] is privileged, container.label
        assert context["readOnlyRootFilesystem"] is True, container.label
        assert context["capabilities"] == {"drop": ["ALL"]}, container.label
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, container.label
        assert context.get("runAsNonRoot", False) is (container.name not in ROOT), container.label


def test_only_agents_see_the_host_and_only_the_places_that_are_listed() -> None:
    for container in all_containers():
        assert not container.pod.get("hostNetwork"), container.label
        assert not container.pod.get("hostIPC"), container.label
        assert bool(container.pod.get("hostPID")) is (container.kind == "DaemonSet"), container.label
        paths = {volume["hostPath"]["path"] for volume in container.pod["volumes"] if "hostPath" in volume}
        assert paths <= HOST_PATHS.keys(), container.label
        assert not paths or container.kind == "DaemonSet", container.label


def test_no_pod_has_a_token_for_the_api_server() -> None:
    for container in all_containers():
        assert container.pod["automountServiceAccountToken"] is False, container.label
    accounts = [each for name in OVERLAYS for each in render(f"overlays/{name}") if each["kind"] == "ServiceAccount"]
    assert accounts
    assert all(account["automountServiceAccountToken"] is False for account in accounts)


def test_every_container_says_what_it_needs_and_what_it_may_take() -> None:
    for container in all_containers():
        for kind in ("requests", "limits"):
            assert {"cpu", "memory"} <= container.spec["resources"][kind].keys(), container.label


def test_agents_take_no_gpu_from_users_and_jobs_ask_for_one() -> None:
    for container in all_containers():
        asks = "nvidia.com/gpu" in container.spec["resources"]["limits"]
        assert asks is (container.kind == "Job"), container.label


def test_what_runs_for_ever_is_probed() -> None:
    for container in pods(*(f"overlays/{name}" for name in OVERLAYS)):
        assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.spec.keys(), container.label


def test_options_and_variables_are_those_of_our_commands() -> None:
    for container in pods(*KUSTOMIZATIONS):
        command = COMMANDS[container.spec["image"].partition(":")[0]].command
        words = (
            container.spec["args"][: container.spec["args"].index("--")]
            if "--" in container.spec["args"]
            else container.spec["args"]
        )
        known = {text for option in command.params for text in (*option.opts, *option.secondary_opts)}
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert given <= known, container.label
        ours = variables(container.spec).keys() - SHELL_VARIABLES
        # Of a collector's pod, commands that are run inside it also read some.
        others = documented_variables(collector_nodes.command) if container.name == "collector" else set()
        assert {name for name in ours if not name.startswith("POD_")} <= documented_variables(command) | others


def test_what_args_refer_to_is_defined() -> None:
    for container in all_containers():
        defined: set[str] = set()
        for name, value in variables(container.spec).items():
            assert set(re.findall(r"\$\((\w+)\)", value or "")) <= defined, container.label
            defined.add(name)
        used = {name for word in container.spec.get("args", ()) for name in re.findall(r"\$\((\w+)\)", word)}
        assert used <= defined, container.label


def test_what_is_written_lies_on_a_volume_that_can_be_written() -> None:
    for container in pods(*KUSTOMIZATIONS):
        writable = [mount["mountPath"] for mount in container.spec["volumeMounts"] if not mount.get("readOnly")]
        given = variables(container.spec)
        for name in ("GPUAGENT_SPOOL_DIR", "GPUAGENT_RUNTIME_DIR"):
            place = given.get(name)
            # Below the mount, not at it: an emptyDir belongs to root, and the agent wants folders of its own.
            assert place is None or any(place.startswith(f"{mount}/") for mount in writable), container.label


def test_secrets_that_pods_mount_have_the_keys_that_are_made() -> None:
    made = {"gpuagent-token": {"token"}, "gpuagent-collector-tls": {"tls.crt", "tls.key", "ca.crt"}}
    for container in pods(*KUSTOMIZATIONS):
        for source in secrets_of(container):
            assert {item["key"] for item in source.get("items", ())} <= made[source["name"]], container.label
            private = {"tls.key"} & {item["key"] for item in source.get("items", [{"key": "tls.key"}])}
            assert not private or container.name == "collector", container.label


def secrets_of(container: Container) -> Iterator[dict[str, Any]]:
    for volume in container.pod["volumes"]:
        if "secret" in volume:
            yield {"name": volume["secret"]["secretName"]}
        for source in volume.get("projected", {}).get("sources", ()):
            yield source["secret"]


def test_selectors_find_the_pods_they_mean() -> None:
    for name in OVERLAYS:
        manifests = render(f"overlays/{name}")
        labels = [
            each["spec"]["template"]["metadata"]["labels"] for each in manifests if "template" in each.get("spec", {})
        ]
        for manifest in manifests:
            selector = manifest.get("spec", {}).get("selector") or manifest.get("spec", {}).get("podSelector")
            wanted = (selector or {}).get("matchLabels", selector)
            assert not wanted or any(wanted.items() <= each.items() for each in labels), manifest["metadata"]["name"]


def test_an_agent_never_pushes_a_training_off_its_node() -> None:
    assert one("overlays/gke", "PriorityClass", "gpuagent-agent")["preemptionPolicy"] == "Never"


def test_gke_runs_agents_on_gpu_nodes_only_and_after_the_driver() -> None:
    (agent,) = (each for each in pods("overlays/gke") if each.name == "agent")
    terms = agent.pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [{"key": "cloud.google.com/gke-accelerator", "operator": "Exists"}]}]
    mounts = {mount["mountPath"]: mount for mount in agent.spec["volumeMounts"]}
    assert mounts["/usr/local/nvidia"]["readOnly"] is True
    assert variables(agent.spec)["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64"
    assert [each["name"] for each in agent.pod["initContainers"]] == ["wait-for-driver"]


def test_ranks_of_an_indexed_job_are_as_many_as_torchrun_waits_for_and_find_the_first() -> None:
    job = one("jobs/torchrun", "Job", "gpuagent-torchrun")["spec"]
    (container,) = pods("jobs/torchrun")
    words = container.spec["args"]
    assert f"--nnodes={job['completions']}" in words
    assert job["completions"] == job["parallelism"]
    service = one("jobs/torchrun", "Service", container.pod["subdomain"])
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert f"--master-addr=gpuagent-torchrun-0.{container.pod['subdomain']}" in words


@pytest.mark.parametrize("name", JOBS)
def test_a_job_ends_only_after_what_it_measured_is_delivered(name: str) -> None:
    (container,) = pods(f"jobs/{name}")
    deliver_seconds = float(variables(container.spec)["GPUAGENT_DELIVER_WITHIN"] or 0)
    assert container.pod["terminationGracePeriodSeconds"] > deliver_seconds + 10
    assert container.pod["restartPolicy"] == "Never"
