"""Who placed the agent on its node."""

from gpuagent.facts.surroundings import Surroundings

_SERVICE_ACCOUNT = "run/secrets/kubernetes.io/serviceaccount"


def detect_orchestrator(surroundings: Surroundings) -> str:
    """Return slurm, openshift, kubernetes or none. Slurm comes first: in a pod, too, it is Slurm that gave the job."""
    if "SLURM_JOB_ID" in surroundings.environment or "/slurm" in surroundings.proc_text("self/cgroup"):
        return "slurm"
    if not _is_in_pod(surroundings):
        return "none"
    return "openshift" if _is_openshift(surroundings) else "kubernetes"


def _is_in_pod(surroundings: Surroundings) -> bool:
    return (
        "KUBERNETES_SERVICE_HOST" in surroundings.environment
        or surroundings.has(_SERVICE_ACCOUNT)
        or surroundings.has(f"var/{_SERVICE_ACCOUNT}")
        or "kubepods" in surroundings.proc_text("self/cgroup")
        # The variables may have been taken away on the way, and a group's path begins at the container's own.
        or "/kubelet/pods/" in surroundings.proc_text("self/mountinfo")
    )


def _is_openshift(surroundings: Surroundings) -> bool:
    """OpenShift adds the certificate of its service CA to every service account, and its variables to builds."""
    return (
        surroundings.has(f"{_SERVICE_ACCOUNT}/service-ca.crt")
        or surroundings.has(f"var/{_SERVICE_ACCOUNT}/service-ca.crt")
        or any(name.startswith("OPENSHIFT_") for name in surroundings.environment)
    )
