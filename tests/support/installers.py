"""The one-file installer, made as a release makes it."""

import subprocess
import sys
from pathlib import Path

from tests.support.containers import REPOSITORY
from tests.support.programs import unavailable


def make_installer(folder: Path, *options: str) -> Path:
    command = [sys.executable, str(REPOSITORY / "scripts/make_installer.py"), "--out", str(folder), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        unavailable(f"the installer cannot be made: {done.stderr[-300:]}")
    (made,) = folder.glob("*.run")
    return made
