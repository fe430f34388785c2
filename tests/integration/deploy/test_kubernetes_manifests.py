"""What `kubectl kustomize` makes of deploy/kubernetes: schemas, names that have to agree, and what pods may do."""

import itertools
import json
import re
from collections.abc import Iterator, Sequence

import click
import fastjsonschema
import kubernetes_validate
import pytest
import yaml

import gpuagent
from deploy.kubernetes import cluster
from deploy.kubernetes.composition import Deployment, compose
from gpuagent.cli import run as agent_run
from gpuagent.cli import start as agent_start
from gpuagent.sources.source import Cluster
from gpuagent_collector.cli import nodes as collector_nodes
from gpuagent_collector.cli import serve as collector_serve
from gpuagent_collector.cli.keeping import compact
from tests.integration.deploy.kinds_of_others import OF_OTHERS, check
from tests.support.manifests import (
    CLUSTERS,
    JOBS,
    KUBERNETES,
    KUSTOMIZATIONS,
    Container,
    containers,
    jobs_of,
    one,
    pod_of,
    pods,
    render,
    variables,
)

pytestmark = pytest.mark.needs("kubectl")

# The oldest, whose kubectl we ask for, and the newest; what both take, those between take as well.
VERSIONS = ("1.27", "1.37")

# Container → what its image is started with.
COMMANDS = {
    "agent": agent_start.command,
    "collector": collector_serve.command,
    "compact": compact,
    "workload": agent_run.command,
}

IMAGES = {"gpuagent-agent", "gpuagent-collector", "gpuagent-workloads"}

PRIVILEGED = {
    ("overlays/gke", "agent"): "GKE has no NVIDIA container runtime, and nvidia.com/gpu would take GPUs from users"
}
ROOT = {
    "agent": "the spool's folder on the host is root's, and so are RAPL's counters",
    "wait-for-driver": "a pod's security context is for all its containers",
}
HOST_PATHS = {
    "/var/lib/gpuagent": "the spool outlives the pod",
    "/var/lib/kubelet/pod-resources": "which GPUs each pod has; mounted read-only",
    "/home/kubernetes/bin/nvidia": "where GKE installs the driver's libraries",
    "/dev": "whether the driver has made its devices; seen by the init container alone",
}

SHELL_VARIABLES = {"LD_LIBRARY_PATH", "OPENSHIFT_NODE_NAME", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}
SHELL_VARIABLES |= {"STORE", "DATA", "GPUAGENT_KUBERNETES", "GPUAGENT_KUBERNETES_ARGS", "AGENT_IMAGE"}
"""Variables that are for others than click: the linker, the container runtime, environments, and arguments."""


def documented_variables(command: click.Command) -> set[str]:
    given = [option.envvar or () for option in command.params]
    return {"GPUAGENT_RUNTIME_DIR"}.union(*({names} if isinstance(names, str) else names for names in given))


def all_containers() -> Sequence[Container]:
    return tuple(containers(*KUSTOMIZATIONS))


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_every_manifest(version: str) -> None:
    different = {json.dumps(each): each for name in KUSTOMIZATIONS for each in render(name)}
    for manifest in different.values():
        if manifest["kind"] not in OF_OTHERS:
            kubernetes_validate.validate(dict(manifest), version, strict=True)


def test_openshift_and_cert_manager_take_the_kinds_that_are_theirs() -> None:
    theirs = [each for name in CLUSTERS for each in render(name) if each["kind"] in OF_OTHERS]
    assert {each["kind"] for each in theirs} == OF_OTHERS.keys()
    for manifest in theirs:
        check(manifest)


def test_a_kind_of_others_with_a_field_too_few_or_too_many_or_another_word_is_refused() -> None:
    route = one("overlays/openshift", "Route", "gpuagent-http")
    for broken in ({**route, "spec": {}}, {**route, "more": 1}, {**route, "apiVersion": "v1"}):
        with pytest.raises(fastjsonschema.JsonSchemaException):
            check(broken)


def test_a_scc_allows_what_the_agents_ask_for() -> None:
    scc = one("overlays/openshift", "SecurityContextConstraints", "gpuagent-agent")
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


def test_an_agent_that_launches_may_make_jobs_in_a_restricted_namespace_alone() -> None:
    (rights,) = (each for each in render("launching") if each["kind"] == "Role")
    assert rights["metadata"]["namespace"] == "gpuagent-runs"
    assert {word for rule in rights["rules"] for word in rule["verbs"]} == {"create", "get", "list", "watch", "delete"}
    assert not [each for each in render("launching") if each["kind"].startswith("Cluster")]
    namespace = one("launching", "Namespace", "gpuagent-runs")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    ports = [
        {
            port["port"]
            for rule in one(name, "NetworkPolicy", "gpuagent-agent-egress")["spec"]["egress"]
            for port in rule["ports"]
        }
        for name in ("overlays/generic", "launching")
    ]
    assert ports[1] - ports[0] == {443, 6443}


def test_an_agent_that_names_pods_may_get_single_objects_and_no_more() -> None:
    rendered = render("naming pods")
    (rights,) = (each for each in rendered if each["kind"] == "ClusterRole")
    assert {word for rule in rights["rules"] for word in rule["verbs"]} == {"get"}
    assert "secrets" not in {kind for rule in rights["rules"] for kind in rule["resources"]}
    (binding,) = (each for each in rendered if each["kind"] == "ClusterRoleBinding")
    assert [each["name"] for each in binding["subjects"]] == ["gpuagent-agent"]
    assert not [each for each in rendered if each["kind"] in ("Role", "RoleBinding")]
    egress = one("naming pods", "NetworkPolicy", "gpuagent-agent-egress")["spec"]["egress"]
    assert {443, 6443} <= {port["port"] for rule in egress for port in rule["ports"]}


def test_the_kubelets_folder_is_mounted_to_be_read() -> None:
    (agent,) = (each for each in pods("overlays/generic") if each.name == "agent")
    (mount,) = (each for each in agent.spec["volumeMounts"] if each["name"] == "pod-resources")
    assert (mount["mountPath"], mount["readOnly"]) == (str(Cluster().socket.parent), True)


def test_pods_that_an_agent_launches_take_gpuagent_from_the_agent_s_own_image() -> None:
    with compose(Deployment(overlay="no-gpu", launch=True, registry="registry.example.org", tag="next")) as folder:
        rendered = yaml.safe_load_all(cluster.render(folder))
    (agents,) = (each for each in rendered if each["kind"] == "DaemonSet")
    (agent,) = agents["spec"]["template"]["spec"]["containers"]
    values = {each["name"]: each.get("value") for each in agent["env"]}
    assert agent["image"] == values["AGENT_IMAGE"] == "registry.example.org/gpuagent-agent:next"
    assert "--agent-image=$(AGENT_IMAGE)" in values["GPUAGENT_KUBERNETES_ARGS"]


@pytest.mark.parametrize("kustomization", ["overlays/openshift", "openshift, a lake, mutual TLS by cert-manager"])
def test_openshift_chooses_the_users_of_collectors_itself(kustomization: str) -> None:
    found = [each for each in pods(kustomization) if each.name != "agent"]
    assert found
    for container in found:
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & container.pod["securityContext"].keys(), container.label
        assert container.pod["securityContext"]["runAsNonRoot"] is True


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


def test_only_an_agent_that_launches_or_names_pods_has_a_token_for_the_api_server() -> None:
    for container in all_containers():
        asks = container.kustomization in ("launching", "naming pods") and container.name == "agent"
        assert container.pod["automountServiceAccountToken"] is asks, container.label
    accounts = [each for name in CLUSTERS for each in render(name) if each["kind"] == "ServiceAccount"]
    assert accounts
    assert all(account["automountServiceAccountToken"] is False for account in accounts)


def test_every_container_has_this_version_and_limits_and_only_jobs_ask_for_a_gpu() -> None:
    for container in all_containers():
        name, _, tag = container.spec["image"].partition(":")
        assert name in IMAGES, container.label
        assert tag == gpuagent.__version__, container.label
        for kind in ("requests", "limits"):
            assert {"cpu", "memory"} <= container.spec["resources"][kind].keys(), container.label
        asks = "nvidia.com/gpu" in container.spec["resources"]["limits"]
        assert asks is (container.kind == "Job"), container.label


def test_what_runs_for_ever_is_probed_at_a_port_that_it_listens_on() -> None:
    for container in pods(*CLUSTERS):
        spec = container.spec
        probes = {kind: spec[f"{kind}Probe"]["httpGet"] for kind in PROBES if f"{kind}Probe" in spec}
        assert set(probes) == PATHS[container.name].keys(), container.label
        assert {kind: probe["path"] for kind, probe in probes.items()} == PATHS[container.name], container.label
        ports = {port["name"]: port["containerPort"] for port in container.spec.get("ports", ())}
        listens = {word.rpartition(":")[2] for word in container.spec["args"] if "=0.0.0.0:" in word}
        assert {str(number) for number in ports.values()} == listens, container.label
        assert {probe["port"] for probe in probes.values()} <= ports.keys(), container.label


PROBES = ("startup", "readiness", "liveness")
# Container → what it is asked; compaction ends by itself.
PATHS = {
    "collector": {"startup": "/healthz", "readiness": "/readyz", "liveness": "/healthz"},
    # Not /readyz, which wants a collector: when that restarts, a DaemonSet would replace all agents at once.
    "agent": {"startup": "/healthz", "readiness": "/healthz", "liveness": "/healthz"},
    "compact": {},
}


def test_every_port_is_behind_a_policy_that_names_who_may_reach_it() -> None:
    for container in pods(*CLUSTERS):
        policies = [each["spec"] for each in render(container.kustomization) if each["kind"] == "NetworkPolicy"]
        ours = [
            policy
            for policy in policies
            if policy["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == container.name
            and "Ingress" in policy["policyTypes"]
        ]
        assert ours, container.label
        rules = [rule for policy in ours for rule in policy.get("ingress", [])]
        assert all(rule["from"] for rule in rules), container.label
        reached = {port["port"] for rule in rules for port in rule["ports"]}
        assert reached == {port["name"] for port in container.spec.get("ports", ())}, container.label


def test_policies_have_no_empty_list_which_the_server_would_drop_so_that_a_diff_never_ends() -> None:
    policies = [each for name in CLUSTERS for each in render(name) if each["kind"] == "NetworkPolicy"]
    assert policies
    assert not [policy["metadata"]["name"] for policy in policies if [] in policy["spec"].values()]


def test_a_user_of_jobs_may_list_and_watch_them() -> None:
    (rights,) = yaml.safe_load_all((KUBERNETES / "jobs/rights.yaml").read_text())
    verbs = {kind: set(rule["verbs"]) for rule in rights["rules"] for kind in rule["resources"]}
    assert verbs["jobs"] == verbs["pods"] == {"create", "get", "list", "watch", "delete"}


def test_options_and_variables_are_those_of_our_commands() -> None:
    for container in pods(*KUSTOMIZATIONS):
        command = COMMANDS[container.name]
        words = itertools.takewhile(lambda word: word != "--", container.spec["args"])
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
    for container in pods(*KUSTOMIZATIONS):
        for name, keys in secrets_of(container):
            made, only_for = SECRETS[name]
            assert (keys or made) <= made, container.label
            assert not keys - {"token", "ca.crt"} if keys else container.name in only_for, container.label


# Secret → its keys, and who may mount all of them.
SECRETS = {
    "gpuagent-token": ({"token"}, ()),
    "gpuagent-collector-tls": ({"tls.crt", "tls.key", "ca.crt"}, ("collector",)),
    "gpuagent-client-tls": ({"tls.crt", "tls.key"}, ("agent", "collector")),
    "gpuagent-owner": ({"token", "tokens.json"}, ("collector",)),
    "gpuagent-catalog-ca": ({"ca.crt"}, ("collector", "compact")),
}


def secrets_of(container: Container) -> Iterator[tuple[str, set[str]]]:
    """Yield Secrets that a pod mounts, and of which only some keys, these."""
    for volume in container.pod["volumes"]:
        if "secret" in volume:
            yield volume["secret"]["secretName"], set()
        for source in volume.get("projected", {}).get("sources", ()):
            yield source["secret"]["name"], {item["key"] for item in source["secret"]["items"]}


def test_selectors_find_the_pods_they_mean() -> None:
    for name in CLUSTERS:
        manifests = render(name)
        labels = [
            template["metadata"]["labels"]
            for each in manifests
            for template in (each.get("spec", {}).get("template"), jobs_of(each).get("template"))
            if template
        ]
        for manifest in manifests:
            selector = manifest.get("spec", {}).get("selector") or manifest.get("spec", {}).get("podSelector")
            wanted = (selector or {}).get("matchLabels", selector)
            assert not wanted or any(wanted.items() <= each.items() for each in labels), manifest["metadata"]["name"]


def test_gke_runs_agents_on_gpu_nodes_only_after_the_driver_and_never_pushes_a_training_off() -> None:
    assert one("overlays/gke", "PriorityClass", "gpuagent-agent")["preemptionPolicy"] == "Never"
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


# What has several collectors.
LAKES = ("overlays/scale", "openshift, a lake, mutual TLS by cert-manager")


@pytest.mark.parametrize("lake", LAKES)
def test_several_collectors_keep_nothing_and_the_one_with_a_volume_is_not_there(lake: str) -> None:
    kinds = {each["kind"] for each in render(lake)}
    assert "Deployment" in kinds
    assert "StatefulSet" not in kinds
    deployment = one(lake, "Deployment", "gpuagent-collector")
    assert not {"serviceName", "volumeClaimTemplates"} & deployment["spec"].keys()
    volumes = [set(volume) - {"name"} for volume in (pod_of(deployment) or {})["volumes"]]
    assert {kind for volume in volumes for kind in volume} == {"emptyDir", "secret"}
    assert one(lake, "PodDisruptionBudget", "gpuagent-collector")["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize("lake", LAKES)
def test_nothing_that_opens_the_lake_stands_in_a_manifest(lake: str) -> None:
    for container in pods(lake):
        of_lake = container.name in ("collector", "compact")
        assert container.spec.get("envFrom", []) == ([{"secretRef": {"name": "gpuagent-lake"}}] if of_lake else [])
    assert not [each for each in render(lake) if each["kind"] == "Secret"]


@pytest.mark.parametrize("lake", LAKES)
def test_compaction_runs_every_hour_and_never_twice_at_once_and_is_no_collector_to_the_service(lake: str) -> None:
    job = one(lake, "CronJob", "gpuagent-compact")
    assert job["spec"]["schedule"].split()[1:] == ["*", "*", "*", "*"]
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    labels = jobs_of(job)["template"]["metadata"]["labels"]
    selector = one(lake, "Service", "gpuagent-collector")["spec"]["selector"]
    assert not selector.items() <= labels.items()


def test_what_the_user_says_of_a_lake_stands_where_collectors_and_compaction_read_it() -> None:
    lake = LAKES[1]
    (settings,) = (each for each in render(lake) if each["metadata"]["name"].startswith("gpuagent-lake-"))
    assert settings["data"] == {"store": "ducklake:postgres:host=db1 dbname=lake user=lake", "data": "s3://bucket/lake"}
    assert one(lake, "Deployment", "gpuagent-collector")["spec"]["replicas"] == 5
    (compact,) = (each for each in pods(lake) if each.name == "compact")
    assert compact.spec["args"] == ["compact", "--store=$(STORE)", "--keep-raw=7d", "--keep=90d"]


def test_one_collector_thins_out_its_own_store() -> None:
    (collector,) = (each for each in pods("mutual TLS") if each.name == "collector")
    assert collector.spec["args"][-2:] == ["--keep-raw=7d", "--keep=90d"]
