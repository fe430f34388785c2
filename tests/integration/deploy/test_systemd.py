"""The systemd units, by systemd's own judgement, and what our programs tell systemd."""

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from gpuagent_common.service_manager import notify, watchdog_seconds
from tests.support.servers import BIN, LIMIT_SECONDS, Node

SYSTEMD = Path(__file__).parents[3] / "deploy/systemd"
UNITS = ["gpuagent.service", "gpuagent-collector.service"]
# How exposed a unit may be at most, in tenths of what `systemd-analyze security` tells.
EXPOSURE = {"gpuagent.service": 25, "gpuagent-collector.service": 15}


@contextmanager
def systemd(node: Node) -> Iterator[Callable[[], str]]:
    """Be systemd to what is started in `node`; yields what returns the next that it is told."""
    address = f"{node.folder}/notify"
    node.environment.update(NOTIFY_SOCKET=address, WATCHDOG_USEC="1000000")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(address)
        listening.settimeout(LIMIT_SECONDS)
        yield lambda: listening.recv(100).decode()
    Path(address).unlink()


def install(staging: Path, part: str, *, action: str = "install") -> str:
    command = [str(SYSTEMD / "services.sh"), action, part, "/srv/gpuagent"]
    environment = {**os.environ, "DESTDIR": str(staging)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    """A root with programs where the units look for them."""
    programs = tmp_path / "srv/gpuagent/bin"
    programs.mkdir(parents=True)
    for program in ("gpuagent", "collector"):
        shutil.copy(BIN / program, programs)
    return tmp_path


def test_services_are_installed_and_taken_away_again_but_for_what_an_operator_wrote(staging: Path) -> None:
    for part in ("agent", "collector"):
        install(staging, part)
    etc = staging / "etc"
    (etc / "gpuagent/agent.env").write_text("GPUAGENT_COLLECTOR=mine:50051\n")
    assert "ExecStart=/srv/gpuagent/bin/gpuagent start" in (etc / "systemd/system/gpuagent.service").read_text()
    install(staging, "agent")
    for part in ("agent", "collector"):
        assert "/etc/gpuagent and /var/lib/gpuagent" in install(staging, part, action="uninstall")
    left = {str(path.relative_to(staging)) for path in staging.rglob("*") if path.is_file() and "srv" not in path.parts}
    assert left == {"etc/gpuagent/agent.env", "etc/gpuagent/collector.env"}
    assert "mine" in (etc / "gpuagent/agent.env").read_text()


@pytest.mark.parametrize(("part", "program"), [("agent", "gpuagent start"), ("collector", "collector serve")])
def test_without_systemd_or_root_the_script_says_so_and_names_the_program(part: str, program: str) -> None:
    if Path("/run/systemd/system").is_dir() and os.geteuid() == 0:
        pytest.skip("here it would install")
    command = [str(SYSTEMD / "services.sh"), "install", part]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    if os.geteuid() == 0:
        assert f"/opt/gpuagent/bin/{program}," in done.stderr
    assert re.fullmatch(r"gpuagent: (services are root's|systemd does not run here).*\n", done.stderr)


@pytest.mark.needs("systemd-analyze")
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_finds_no_fault_with_a_unit_and_little_exposure(unit: str, tmp_path: Path) -> None:
    # Where the programs are, for systemd looks whether they can be run.
    path = tmp_path / unit
    path.write_text((SYSTEMD / unit).read_text().replace("/opt/gpuagent/bin", str(BIN)))
    for words in (["verify"], ["security", "--offline=true", f"--threshold={EXPOSURE[unit]}", "--no-pager"]):
        done = subprocess.run(["systemd-analyze", *words, str(path)], capture_output=True, text=True, check=False)
        assert (done.returncode, "Unknown" in done.stderr) == (0, False), done.stdout + done.stderr


def test_collector_and_agent_tell_systemd_that_they_are_ready_alive_and_stopping(node: Node) -> None:
    for start in (node.serve, partial(node.start, "gpuagent", "start", log="agent.log")):
        with systemd(node) as heard:
            process = start()
            assert [heard() for _ in range(3)] == ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]
            process.send_signal(signal.SIGTERM)
            assert any(heard() == "STOPPING=1" for _ in range(5))
            assert process.wait(LIMIT_SECONDS) == 0


def test_the_watchdog_asks_whom_it_means(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watchdog_seconds() is None
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    assert watchdog_seconds() == 30
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    assert watchdog_seconds() == 30
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert watchdog_seconds() is None


def test_an_abstract_socket_is_told_and_a_missing_one_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"gpuagent-{os.getpid()}"
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        notify("READY=1")
        assert listening.recv(100) == b"READY=1"
    notify("READY=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify("READY=1")
