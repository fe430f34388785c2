"""A terminal that is closed: `deploy/gke/launch_cluster.py` cleans up, and tells a file of it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.gcp.options import HANG_UP_FILE
from tests.unit.deploy.gke.google_cloud import BUSY, HANG, GoogleCloud, refuse
from tests.unit.deploy.gke.test_launch_cluster import SCRIPT, SPREAD, delete

RUN = """import fcntl, runpy, signal, sys, termios
exec(sys.argv.pop(1))
del sys.argv[0]
runpy.run_path(sys.argv[0], None, "__main__")"""
# Begins a command that does what the next word says, and then is the script that comes behind it.
AFTER = (sys.executable, "-c", RUN)


def test_a_terminal_that_is_closed_during_creation_is_as_ctrl_c_and_a_file_tells_of_it(
    cloud: GoogleCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    cloud.answers("clusters create", HANG)
    cloud.answers("clusters delete", refuse(BUSY))
    ours, its = os.openpty()
    # The terminal of its session: the kernel tells by SIGHUP when it goes.
    command = [*AFTER, "fcntl.ioctl(0, termios.TIOCSCTTY, 0)", *SCRIPT]
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, start_new_session=True) as process:
        os.close(its)
        (cloud.folder / "hangs").read_text()
        os.close(ours)
    assert process.returncode == 1
    assert cloud.changes == [SPREAD, delete("--region us-central1")]
    said = (tmp_path / HANG_UP_FILE).read_text()
    assert "the terminal was closed" in said
    assert "may exist and cost money until you delete it" in said
    assert said.strip().endswith(delete("--region us-central1"))


def test_a_home_that_cannot_be_written_keeps_nobody_from_cleaning_up(
    cloud: GoogleCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/no/such/home")
    cloud.answers("clusters create", HANG)
    with subprocess.Popen([sys.executable, *SCRIPT], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        (cloud.folder / "hangs").read_text()
        process.send_signal(signal.SIGHUP)
    assert process.returncode == 130
    assert cloud.changes == [SPREAD, delete("--region us-central1")]


def test_a_script_that_nohup_runs_goes_on_without_its_terminal(cloud: GoogleCloud) -> None:
    cloud.answers("clusters create", HANG)
    with subprocess.Popen(
        [*AFTER, "signal.signal(signal.SIGHUP, signal.SIG_IGN)", *SCRIPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        (cloud.folder / "hangs").read_text()
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate()
    assert process.returncode == 130, said
    assert "the terminal was closed" not in said
    assert said.endswith("interrupted\n")
