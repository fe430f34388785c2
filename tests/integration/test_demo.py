"""`make demo`, from a copy of its script, so that it leaves its folder elsewhere."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.support.servers import LIMIT_SECONDS, until

ROOT = Path(__file__).resolve().parents[2]


def _running_in(folder: Path) -> list[int]:
    """Return the processes that were started with something of this folder in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(folder) in value for value in process.environ().values()):
                found.append(process.pid)
        except psutil.Error:  # gone by now, or another user's
            continue
    return found


def test_ctrl_c_ends_the_demo_and_leaves_nothing_running(tmp_path: Path) -> None:
    script = tmp_path / "scripts" / "demo.py"
    script.parent.mkdir()
    shutil.copy(ROOT / "scripts" / "demo.py", script)
    log = tmp_path / "log"
    with log.open("w") as output:
        demo = subprocess.Popen(
            [sys.executable, script], stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    until(lambda: "$ gpuagent run mnist" in log.read_text() or demo.poll() is not None, "the first run")
    assert len(_running_in(tmp_path)) >= 2, log.read_text()
    os.killpg(demo.pid, signal.SIGINT)
    assert demo.wait(LIMIT_SECONDS) == 130, log.read_text()
    assert not _running_in(tmp_path)
