"""A runner of the gcloud CLI, and the meaning of its errors.

Errors are recognised by texts of Google Cloud CLI 528.0.0 and of public reports.
"""

import enum
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deploy.kubernetes.problems import DeployError

QUOTA_PAGE = "https://console.cloud.google.com/iam-admin/quotas"


class Refusal(enum.Enum):
    """The reason of a gcloud error."""

    STOCK_OUT = "out of stock"
    QUOTA = "the region's quota is too small"
    QUOTA_EVERYWHERE = "the project's quota over all regions is too small"
    EXISTS = "it exists already"
    ABSENT = "it does not exist"
    BUSY = "another operation on it is in progress"
    SIGNED_OUT = "gcloud is not signed in"
    API_OFF = "an API is not enabled in the project"
    FORBIDDEN = "the account lacks the permission"
    OTHER = "failed"


# The texts of each reason, specific ones first: a quota error has the code 403 as well.
_TEXTS: tuple[tuple[str, Refusal], ...] = (
    (r"do not currently have an active account|refreshing your current auth tokens|invalid_grant", Refusal.SIGNED_OUT),
    (r"has not been used in project|SERVICE_DISABLED|API \[[\w.]+\] not enabled", Refusal.API_OFF),
    (r"GPUS_ALL_REGIONS|CPUS_ALL_REGIONS|insufficient project quota", Refusal.QUOTA_EVERYWHERE),
    (r"QUOTA_EXCEEDED|Quota '\w+' exceeded|insufficient regional quota", Refusal.QUOTA),
    (r"RESOURCE_POOL_EXHAUSTED|GCE_STOCKOUT|does\s+not\s+have\s+enough\s+resources", Refusal.STOCK_OUT),
    (r"code=409|already exists", Refusal.EXISTS),
    (r"code=404|was not found|No cluster named", Refusal.ABSENT),
    (r"incompatible operation|currently (?:creating|deleting|being)", Refusal.BUSY),
    (r"code=403|PERMISSION_DENIED|Required '?\"?[\w.]+'?\"? permission", Refusal.FORBIDDEN),
)

_EMPTY_ZONE = re.compile(
    r"zones/([a-z0-9-]+)'?\s+does\s+not\s+have\s+enough\s+resources|unavailable\s+in\s+the\s+([a-z0-9-]+)\s+zone\b"
)

_REMEDIES = {
    Refusal.SIGNED_OUT: "sign in with: gcloud auth login",
    Refusal.API_OFF: "enable it with: gcloud services enable compute.googleapis.com container.googleapis.com",
    Refusal.FORBIDDEN: "ask the project's owner for the roles Kubernetes Engine Admin and Compute Admin",
    Refusal.QUOTA: f"request more at {QUOTA_PAGE}",
    Refusal.QUOTA_EVERYWHERE: f"request more of the metric «GPUs (all regions)» at {QUOTA_PAGE}",
}


class GcloudError(DeployError):
    """An error of gcloud.

    Attributes:
        refusal: its reason.
        stderr: its output.
    """

    def __init__(self, command: Sequence[str], stderr: str) -> None:
        self.refusal = refusal_of(stderr)
        self.stderr = stderr
        remedy = _REMEDIES.get(self.refusal)
        super().__init__(
            f"{self.refusal.value}: {shlex.join(command)}\n  "
            + "\n  ".join(stderr.strip().splitlines() or ["(no output)"])
            + (f"\n{remedy}" if remedy else "")
        )

    @property
    def empty_zones(self) -> frozenset[str]:
        """The zones in its text that are out of stock."""
        if self.refusal is not Refusal.STOCK_OUT:
            return frozenset()
        return frozenset(first or second for first, second in _EMPTY_ZONE.findall(self.stderr))


def refusal_of(stderr: str) -> Refusal:
    """Return the reason of an error, from its text."""
    for pattern, refusal in _TEXTS:
        if re.search(pattern, stderr, re.IGNORECASE):
            return refusal
    return Refusal.OTHER


def say(text: str) -> None:
    """Print a line at once, also into a file."""
    print(text, flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """A runner of programs that prints each command.

    Attributes:
        dry_run: print commands that change something without running them; reading commands run.
        project: gcloud's project; None: not known yet.
    """

    dry_run: bool = False
    project: str | None = None

    def ask(self, *arguments: str) -> Any:
        """Return the answer of `gcloud … --format=json`.

        Raises:
            GcloudError: it failed, or its answer is not JSON.
        """
        command = self.gcloud(*arguments, "--format=json")
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise GcloudError(command, result.stderr)
        try:
            return json.loads(result.stdout or "null")
        except ValueError as error:
            raise GcloudError(command, f"the answer is not JSON: {result.stdout[:200]}") from error

    def gcloud(self, *arguments: str) -> list[str]:
        """Return the command for the project, without prompts."""
        project = ["--project", self.project] if self.project else []
        return ["gcloud", *arguments, *project, "--quiet"]

    def change(self, *arguments: str) -> None:
        """Run a gcloud command that changes something, and show its output.

        Raises:
            GcloudError: it failed.
        """
        self.run(self.gcloud(*arguments))

    def run(self, command: Sequence[str]) -> None:
        """Run a program that changes something, and show its output.

        Raises:
            GcloudError: it failed.
        """
        say(f"$ {shlex.join(command)}")
        if self.dry_run:
            return
        written: list[str] = []
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr  # noqa: S101 (it is a pipe)
            try:
                for line in process.stderr:
                    written.append(line)
                    sys.stderr.write(line)
            except BaseException:
                process.terminate()
                raise
        if process.returncode:
            raise GcloudError(command, "".join(written))


def require(*programs: str) -> None:
    """Check that programs are installed.

    Raises:
        DeployError: one is missing.
    """
    sources = {
        "gcloud": "install the Google Cloud CLI: https://cloud.google.com/sdk/docs/install",
        "kubectl": "install it with: gcloud components install kubectl",
        "gke-gcloud-auth-plugin": "kubectl needs it: gcloud components install gke-gcloud-auth-plugin",
        "make": "on Debian and Ubuntu: apt-get install make",
    }
    for program in programs:
        if not shutil.which(program):
            raise DeployError(f"{program} is not installed; {sources[program]}")


def sign_in(project: str | None, *, dry_run: bool) -> Shell:
    """Return a shell for the user's project.

    Args:
        project: the named project; None: gcloud's own setting.
        dry_run: see `Shell`.

    Raises:
        DeployError: gcloud is missing, nobody is signed in, or no project is set.
    """
    require("gcloud")
    shell = Shell(dry_run=dry_run)
    if not shell.ask("auth", "list", "--filter=status:ACTIVE"):
        raise DeployError(f"gcloud is not signed in; {_REMEDIES[Refusal.SIGNED_OUT]}")
    project = project or shell.ask("config", "get", "project")
    if not project:
        raise DeployError("no project is set; give --project, or run: gcloud config set project PROJECT")
    return Shell(dry_run=dry_run, project=project)
