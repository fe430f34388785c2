"""The one-file installer, made for real and run without a network."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.containers import answers
from tests.support.installers import make_installer
from tests.support.trees import plant

pytestmark = pytest.mark.slow

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def installer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_installer(tmp_path_factory.mktemp("installer"))


def without_network() -> list[str]:
    """Return what begins a command that has no network; nothing where the kernel does not allow that."""
    command = ["unshare", "--net", "--map-root-user"]
    return command if shutil.which("unshare") and answers([*command, "true"]) else []


def run(installer: Path, *options: str, code: int = 0) -> str:
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(installer.parent)}
    command = [*without_network(), "bash", str(installer), *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_it_installs_over_an_older_one_and_takes_away_without_a_network(installer: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "gpuagent"
    plant(prefix, {"systemd/gpuagent.service": "older", "slurm/gpuagent.env": "an operator's", "lib/older.py": ""})
    program = prefix / "bin/gpuagent"
    assert f"{program} info" in run(installer, "--prefix", str(prefix))
    environment = {"PATH": os.environ["PATH"], "GPUAGENT_SPOOL_DIR": str(tmp_path / "spool")}
    told = subprocess.run([program, "info"], env=environment, capture_output=True, text=True, check=True)
    assert platform.machine() in told.stdout
    assert (prefix / "slurm/gpuagent.env").read_text() == "an operator's"
    assert not (prefix / "lib/older.py").exists()
    assert "is removed" in run(installer, "--prefix", str(prefix), "--uninstall")
    assert not prefix.exists()


def changed(installer: Path, folder: Path, old: str, new: str) -> Path:
    other = folder / "other.run"
    other.write_bytes(installer.read_bytes().replace(old.encode(), new.encode(), 1))
    return other


def test_another_machine_and_another_python_are_refused(installer: Path, tmp_path: Path) -> None:
    other = changed(installer, tmp_path, 'machine="', 'machine="not-')
    said = run(other, "--prefix", str(tmp_path / "p"), code=1)
    machine = platform.machine()
    assert said == f"gpuagent: this file is for Linux on not-{machine}; this is Linux on {machine}\n"
    other = changed(installer, tmp_path, f'pythons="{PYTHON}"', 'pythons="3.1 3.2"')
    said = run(other, "--prefix", str(tmp_path / "p"), "--python", sys.executable, code=1)
    assert said == f"gpuagent: {sys.executable} is Python {PYTHON}; this file is for Python 3.1 or 3.2\n"
    said = run(other, "--prefix", str(tmp_path / "p"), code=1)
    assert "--python PROGRAM" in said


def test_a_file_that_was_cut_off_is_refused(installer: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.run"
    cut.write_bytes(installer.read_bytes()[:-1])
    assert "checksum is wrong" in run(cut, "--prefix", str(tmp_path / "p"), code=1)


def test_a_folder_with_something_else_in_it_is_left_alone(installer: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    assert "holds something else" in run(installer, "--prefix", str(tmp_path), code=1)
    assert "no gpuagent in" in run(installer, "--prefix", str(tmp_path), "--uninstall", code=1)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_for_power_needs_the_compiled_packages_of_the_distribution(tmp_path: Path) -> None:
    made = make_installer(tmp_path, "--machine", "ppc64le")
    other = changed(made, tmp_path, 'machine="ppc64le"', f'machine="{platform.machine()}"')
    # This Python's own environment has the modules, but not the one that it was made from.
    said = run(other, "--prefix", str(tmp_path / "p"), "--python", sys.executable, code=1)
    assert "apt-get install python3-grpcio python3-psutil python3-yaml" in said
