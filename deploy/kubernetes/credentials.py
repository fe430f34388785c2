"""The Secrets that agents and the collector need: the CA with the collector's certificate, and the agents' token."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.kubernetes.cluster import NAMESPACE, Cluster
from deploy.kubernetes.problems import DeployError, MisuseError

CERTIFICATE_SECRET = "gpuagent-collector-tls"  # noqa: S105 - a name
TOKEN_SECRET = "gpuagent-token"  # noqa: S105 - a name
COLLECTOR_POD = "gpuagent-collector-0"

_NAME = "gpuagent-collector"
HOSTS = (_NAME, f"{_NAME}.{NAMESPACE}", f"{_NAME}.{NAMESPACE}.svc", f"{_NAME}.{NAMESPACE}.svc.cluster.local")
"""Whom the certificate is for; `collector certs` adds loopback, which `kubectl port-forward` leads to."""


def copy_given(cluster: Cluster, token_file: Path | None, ca_file: Path | None) -> None:
    """Make the Secrets for a collector elsewhere out of its files, where they are missing.

    Raises:
        MisuseError: one is missing and its file was not given, or is no file.
    """
    for secret, key, file, option in (
        (TOKEN_SECRET, "token", token_file, "TOKEN_FILE"),
        (CERTIFICATE_SECRET, "ca.crt", ca_file, "CA_FILE"),
    ):
        if cluster.has_secret(secret):
            continue
        if file is None or not file.is_file():
            raise MisuseError(
                f"for a collector elsewhere name its {key} by {option}=FILE; there is no Secret {secret} yet"
            )
        cluster.create_secret(secret, f"{key}={file}")
        print(f"made the Secret {secret} of {file}")


def make_certificate(cluster: Cluster, hosts: Sequence[str]) -> None:
    """Make a CA and the collector's certificate where the cluster has none; the CA's key is not kept.

    Raises:
        MisuseError: `collector certs` is not installed here.
    """
    if cluster.has_secret(CERTIFICATE_SECRET):
        return
    with TemporaryDirectory(prefix="gpuagent-certificates-") as name:
        folder = Path(name)
        _run([_collector(), "certs", "init", "--dir", name, *(f"--host={host}" for host in (*HOSTS, *hosts))])
        files = [f"{file}={folder / file}" for file in ("tls.crt", "tls.key", "ca.crt")]
        cluster.create_secret(CERTIFICATE_SECRET, *files)
    print(f"made the Secret {CERTIFICATE_SECRET}: a CA and a certificate for {', '.join((_NAME, *hosts))}")


def make_token(cluster: Cluster) -> None:
    """Have the collector make the agents' token where the cluster has none: it may write samples, and nothing else."""
    if cluster.has_secret(TOKEN_SECRET):
        return
    said = cluster.run_inside(
        COLLECTOR_POD, "collector", "tokens", "create", "agent", "--any-node", f"--name={TOKEN_SECRET}"
    )
    cluster.create_secret(TOKEN_SECRET, "token=/dev/stdin", text=said)
    print(f"made the Secret {TOKEN_SECRET}: a token of scope agent, for every node")


def _collector() -> str:
    beside = Path(sys.executable).with_name("collector")
    found = str(beside) if beside.exists() else shutil.which("collector")
    if not found:
        raise MisuseError(
            "`collector certs` makes the collector's certificate, and is not installed here: run `make install`, "
            "or have cert-manager make it: CERTIFICATES=cert-manager"
        )
    return found


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DeployError(f"{' '.join(command[:3])} failed: {done.stderr.strip()}")
