"""The Secrets of agents and collectors: certificates, tokens, and the passwords of a lake."""

import secrets
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
CLIENT_SECRET = "gpuagent-client-tls"  # noqa: S105
OWNER_SECRET = "gpuagent-owner"  # noqa: S105
LAKE_SECRET = "gpuagent-lake"  # noqa: S105
COLLECTOR_POD = "gpuagent-collector-0"

_NAME = "gpuagent-collector"
# The certificate's names; `collector certs` adds loopback, for `kubectl port-forward`.
HOSTS = (_NAME, f"{_NAME}.{NAMESPACE}", f"{_NAME}.{NAMESPACE}.svc", f"{_NAME}.{NAMESPACE}.svc.cluster.local")

_TOKEN_BYTES = 32
_TO_MAKE_CERTIFICATES = "make the collector's certificate, or use CERTIFICATES=cert-manager"


def copy_given(cluster: Cluster, token_file: Path | None, ca_file: Path | None) -> None:
    """Make missing Secrets for a collector elsewhere from its files.

    Raises MisuseError: a Secret is missing and its file was not given, or does not exist.
    """
    for secret, key, file, option in (
        (TOKEN_SECRET, "token", token_file, "TOKEN_FILE"),
        (CERTIFICATE_SECRET, "ca.crt", ca_file, "CA_FILE"),
    ):
        if cluster.has_secret(secret):
            continue
        if file is None or not file.is_file():
            raise MisuseError(
                f"there is no Secret {secret} yet; give the {key} of the collector elsewhere by {option}=FILE"
            )
        cluster.create_secret(secret, f"{key}={file}")
        print(f"made the Secret {secret} from {file}")


def make_certificates(cluster: Cluster, hosts: Sequence[str], *, for_clients: bool) -> None:
    """Make a CA and its certificates, if the cluster has none; the CA's key is deleted.

    Args:
        hosts: more names of the collector.
        for_clients: make a client certificate of the agents too.

    Raises:
        MisuseError: `collector certs` is not installed here, or agents have no certificate and the CA's key is gone.
    """
    if cluster.has_secret(CERTIFICATE_SECRET):
        if for_clients:
            need_client_certificate(cluster)
        return
    with TemporaryDirectory(prefix="gpuagent-certificates-") as name:
        folder = Path(name)
        certs = [_collector(_TO_MAKE_CERTIFICATES), "certs"]
        _run([*certs, "init", "--dir", name, *(f"--host={host}" for host in (*HOSTS, *hosts))])
        if for_clients:
            _run([*certs, "node", CLIENT_SECRET, "--dir", name])
            # Before the other Secret, which marks this step as done.
            pair = (f"tls.{end}={folder / 'nodes' / CLIENT_SECRET}.{end}" for end in ("crt", "key"))
            cluster.replace_secret(CLIENT_SECRET, *pair)
            print(f"made the Secret {CLIENT_SECRET}: the agents' client certificate")
        files = [f"{file}={folder / file}" for file in ("tls.crt", "tls.key", "ca.crt")]
        cluster.create_secret(CERTIFICATE_SECRET, *files)
    print(f"made the Secret {CERTIFICATE_SECRET}: a CA and a certificate for {', '.join((_NAME, *hosts))}")


def need_client_certificate(cluster: Cluster) -> None:
    """Check that agents have a client certificate. Raises MisuseError if they have none, and the CA's key is gone."""
    if not cluster.has_secret(CLIENT_SECRET):
        raise MisuseError(
            f"agents have no client certificate; make the Secret {CLIENT_SECRET} from tls.crt and tls.key of the "
            f"collector's CA, or for another CA: kubectl --namespace={NAMESPACE} delete secret {CERTIFICATE_SECRET}"
        )


def make_owner_and_token(cluster: Cluster) -> None:
    """Make the owner's token of several collectors and the agents' token, if the cluster has none.

    Raises MisuseError: `collector tokens` is not installed here, or there is only one of the two.
    """
    there = {name for name in (OWNER_SECRET, TOKEN_SECRET) if cluster.has_secret(name)}
    if len(there) == 1:
        raise MisuseError(
            f"there is only the Secret {there.pop()}, but {OWNER_SECRET} has the hash of {TOKEN_SECRET}; "
            "see docs/deploy/scale.md to make tokens"
        )
    if there:
        return
    with TemporaryDirectory(prefix="gpuagent-tokens-") as name:
        owner = Path(name) / "token"
        owner.touch(mode=0o600)
        owner.write_text(f"{secrets.token_urlsafe(_TOKEN_BYTES)}\n")
        creation = ["tokens", "create", "agent", "--any-node", f"--name={TOKEN_SECRET}", f"--token-file={owner}"]
        made = _run([_collector("make tokens"), *creation])
        # Without a CA certificate below it, which is that of this user's own collector.
        cluster.create_secret(TOKEN_SECRET, "token=/dev/stdin", text=f"{made.splitlines()[0]}\n")
        cluster.create_secret(OWNER_SECRET, f"token={owner}", f"tokens.json={owner.with_name('tokens.json')}")
    print(f"made the Secrets {OWNER_SECRET}, the collectors' own token, and {TOKEN_SECRET}, the agents'")


def copy_lake_variables(cluster: Cluster, file: Path | None) -> None:
    """Make the Secret of catalog and bucket from a file of NAME=VALUE, if it is missing.

    Raises MisuseError: it is missing and the file was not given, or does not exist.
    """
    if cluster.has_secret(LAKE_SECRET):
        return
    if file is None or not file.is_file():
        raise MisuseError(
            f"there is no Secret {LAKE_SECRET} yet; give LAKE_FILE=FILE with PGPASSWORD=…, AWS_ACCESS_KEY_ID=…, "
            "AWS_SECRET_ACCESS_KEY=…, AWS_REGION=…"
        )
    cluster.create_secret_of_variables(LAKE_SECRET, file)
    print(f"made the Secret {LAKE_SECRET} from {file}")


def make_token(cluster: Cluster) -> None:
    """Let the collector make the agents' token, if the cluster has none: it can write samples, and nothing else."""
    if cluster.has_secret(TOKEN_SECRET):
        return
    printed = cluster.run_inside(
        COLLECTOR_POD, "collector", "tokens", "create", "agent", "--any-node", f"--name={TOKEN_SECRET}"
    )
    cluster.create_secret(TOKEN_SECRET, "token=/dev/stdin", text=printed)
    print(f"made the Secret {TOKEN_SECRET}: a token of scope agent, for every node")


def _collector(purpose: str) -> str:
    beside = Path(sys.executable).with_name("collector")
    found = str(beside) if beside.exists() else shutil.which("collector")
    if not found:
        raise MisuseError(f"`collector` is not installed here; run `make install` to {purpose}")
    return found


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DeployError(f"{' '.join(command[:3])} failed: {done.stderr.strip()}")
    return done.stdout
