"""`make audit`: look up every pinned version among the known vulnerabilities.

pip-audit alone ends well when its data knows none of the packages, as behind a mirror that has only the packages.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PINNED = Path(__file__).resolve().parent.parent / "constraints.txt"

COMMAND = ("-m", "pip_audit", "--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json")


def main() -> int:
    """Print the findings; return 0 only if everything was looked up and nothing found."""
    done = subprocess.run(
        [sys.executable, *COMMAND, "--requirement", str(PINNED)], capture_output=True, text=True, check=False
    )
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        print(f"audit: nothing was looked up: pip-audit failed: {reason}", file=sys.stderr)
        return 1
    code, lines = judge(packages)
    print("\n".join(lines), file=sys.stderr if code else sys.stdout)
    return code


def judge(packages: Sequence[Mapping[str, Any]]) -> tuple[int, list[str]]:
    """Return the exit code for pip-audit's result of each package, and a text of it."""
    weak = [
        f"audit: {package['name']} {package['version']}: {weakness['id']}, fixed in "
        f"{', '.join(weakness['fix_versions']) or 'no version yet'}"
        for package in packages
        for weakness in package.get("vulns", ())
    ]
    if not packages:
        return 1, ["audit: pip-audit reported no package"]
    missing = [package["name"] for package in packages if "skip_reason" in package]
    if missing:
        some = f"{', '.join(missing[:3])}{', …' if len(missing) > 3 else ''}"
        weak.append(f"audit: {len(missing)} of {len(packages)} packages not looked up ({some}); check the network")
    return (1, weak) if weak else (0, [f"audit: {len(packages)} packages, no known weakness"])


if __name__ == "__main__":
    sys.exit(main())
