"""A runner of the gcloud CLI, and the meaning of its errors, by texts of version 528.0.0 and of public reports."""

import enum
import functools
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

# At once, also into a file.
say = functools.partial(print, flush=True)


class Refusal(enum.Enum):
    """The reason of a gcloud error: its meaning and its texts. The first that fits counts."""

    # A quota error has the code 403 as well.
    QUOTA_EVERYWHERE = (
        f"the project's quota over all regions is too small; request more «GPUs (all regions)» at {QUOTA_PAGE}",
        r"GPUS_ALL_REGIONS|CPUS_ALL_REGIONS|insufficient project quota",
    )
    QUOTA = (
        f"the region's quota is too small; request more at {QUOTA_PAGE}",
        r"QUOTA_EXCEEDED|Quota '\w+' exceeded|insufficient regional quota",
    )
    STOCK_OUT = ("out of stock", r"RESOURCE_POOL_EXHAUSTED|GCE_STOCKOUT|does\s+not\s+have\s+enough\s+resources")
    EXISTS = ("it exists already", r"code=409|already exists")
    ABSENT = ("it does not exist", r"code=404|was not found|No cluster named")
    OTHER = ("failed", "")


class GcloudError(DeployError):
    """An error of gcloud; `refusal` is its reason."""

    def __init__(self, command: Sequence[str], stderr: str) -> None:
        self.refusal = next(each for each in Refusal if re.search(each.value[1], stderr, re.IGNORECASE))
        said = "\n  ".join(stderr.strip().splitlines() or ["(no output)"])
        super().__init__(f"{self.refusal.value[0]}: {shlex.join(command)}\n  {said}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """A runner of programs that prints each command that changes something.

    Attributes:
        dry_run: print these commands without running them.
        project: gcloud's project; None: not known yet.
        has_account: whether the project can be asked; False only in a dry run.
    """

    dry_run: bool = False
    project: str | None = None
    has_account: bool = True

    def ask(self, *arguments: str) -> Any:
        """Return the answer of `gcloud … --format=json`; raise GcloudError if it failed."""
        command = self.gcloud(*arguments, "--format=json")
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise GcloudError(command, result.stderr)
        return json.loads(result.stdout or "null")

    def gcloud(self, *arguments: str) -> list[str]:
        """Return the command for the project, without prompts."""
        return ["gcloud", *arguments, *(["--project", self.project] if self.project else []), "--quiet"]

    def run(self, command: Sequence[str]) -> None:
        """Run a program that changes something, and show its output; raise GcloudError if it failed."""
        say(f"$ {shlex.join(command)}")
        if self.dry_run:
            return
        written: list[str] = []
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                for line in process.stderr or ():
                    written.append(line)
                    sys.stderr.write(line)
            except BaseException:
                process.terminate()
                raise
        if process.returncode:
            raise GcloudError(command, "".join(written))


def sign_in(project: str | None, *programs: str, dry_run: bool) -> Shell:
    """Return a shell for the named project, or gcloud's own. A dry run needs neither gcloud nor an account.

    Raises DeployError: gcloud or one of `programs` is missing, nobody is signed in, or no project is set.
    """
    try:
        for program in ("gcloud", *(() if dry_run else programs)):
            if not shutil.which(program):
                raise DeployError(f"{program} is not installed; docs/deploy/gke.md has what is needed")
        if not Shell().ask("auth", "list", "--filter=status:ACTIVE"):
            raise DeployError("gcloud is not signed in; sign in with: gcloud auth login")
        if not (project := project or Shell().ask("config", "get", "project")):
            raise DeployError("no project is set; give --project, or run: gcloud config set project PROJECT")
    except DeployError as error:
        if not dry_run:
            raise
        say(f"{str(error).splitlines()[0]}; the plan does not look at stock and quotas")
        return Shell(dry_run=True, project=project or "PROJECT", has_account=False)
    return Shell(dry_run=dry_run, project=project)
