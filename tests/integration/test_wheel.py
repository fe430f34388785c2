"""The wheel is what users get: it holds every file of the packages, and works without the source tree."""

import importlib.metadata
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from gpuagent.images.builders import BUILDERS
from tests.support.servers import Node

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "proto/gpuagent_proto",
    "agent/gpuagent",
    "collector/gpuagent_collector",
    "workloads/gpuagent_workloads",
)
# Interpreters to install the wheel for: it takes a minute each, and fetches packages.
PYTHONS = os.environ.get("GPUAGENT_TEST_PYTHONS", "").split()
# Versions of packages to run the agent on, such as "grpcio==1.62.3,protobuf==4.25.8 grpcio==1.81.1,protobuf==7.34.1".
PINS = os.environ.get("GPUAGENT_TEST_PINS", "").split()
# gRPC's oldest version for the agent has wheels up to this one.
NEWEST_PYTHON_OF_LOWEST = (3, 11)
KEPT = {".py", ".pyi", ".proto", ".sql", ".json", ".html", ".css", ".js"}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the tree and unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_holds_every_file_of_the_packages(unpacked: Path) -> None:
    for package in PACKAGES:
        source, target = ROOT / package, unpacked / Path(package).name
        files = {path.relative_to(source) for path in source.rglob("*") if path.suffix in KEPT}
        assert files
        files.add(Path("py.typed"))
        assert {path.relative_to(target) for path in target.rglob("*") if path.is_file()} >= files


def test_the_wheel_holds_the_recipes_of_the_images(unpacked: Path) -> None:
    folder = unpacked / "gpuagent" / "images" / "recipes"
    assert all((folder / builder.recipe).is_file() for builder in BUILDERS)
    assert (folder / "constraints.txt").read_text() == (ROOT / "constraints.txt").read_text()


@pytest.mark.parametrize("command", ["gpuagent", "collector"])
def test_the_commands_work_without_the_source_tree(unpacked: Path, command: str, tmp_path: Path) -> None:
    module = {"gpuagent": "gpuagent", "collector": "gpuagent_collector"}[command]
    # -S keeps the editable install's path file out; the dependencies come from site-packages all the same.
    program = (
        f"import sys; sys.path[:0] = [{str(unpacked)!r}]; sys.path.append({sysconfig.get_path('purelib')!r});"
        f"import {module}.cli as cli; assert cli.__file__.startswith({str(unpacked)!r}), cli.__file__;"
        f"sys.argv = [{command!r}, '--help']; cli.main()"
    )
    command_line = [sys.executable, "-S", "-c", program]
    done = subprocess.run(command_line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "completion script" in done.stdout


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("python", PYTHONS or [None])
def test_the_wheel_works_in_an_empty_environment(unpacked: Path, python: str | None, tmp_path: Path) -> None:
    if python is None:
        pytest.skip("GPUAGENT_TEST_PYTHONS names no interpreter, such as /usr/bin/python3.13")
    (wheel,) = unpacked.parent.glob("*.whl")
    subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True)
    pip, gpuagent, collector = (str(tmp_path / "venv" / "bin" / name) for name in ("pip", "gpuagent", "collector"))
    subprocess.run([pip, "install", "--quiet", f"{wheel}[collector]"], check=True)
    subprocess.run([pip, "check"], check=True)
    with Node(tmp_path) as node:
        node.serve(program=[collector])
        for side in ("left", "right"):
            node.run(gpuagent, "run", "--repeat", "2", "--label", f"side={side}", "--", "true")
        assert "label:side: left" in node.run(collector, "compare", "--by", "label:side").stdout
        node.run(collector, "report", "report.html", "--by", "label:side")
        assert "<h2" in (tmp_path / "report.html").read_text()


def lowest_versions(site: Path) -> list[str]:
    """Return each requirement of the agent with its lowest version alone, such as click==8.1.3."""
    (metadata,) = site.glob("*.dist-info")
    requirements = map(Requirement, importlib.metadata.Distribution.at(metadata).requires or ())
    of_agent = [requirement for requirement in requirements if requirement.marker is None]
    bounds = [(each.name, part.version) for each in of_agent for part in each.specifier if part.operator == ">="]
    assert len(bounds) == len(of_agent)
    return [f"{name}=={version}" for name, version in bounds]


def try_agent(wheel: Path, python: str, pins: Sequence[str], folder: Path) -> None:
    """Install the wheel with exactly these versions, and deliver a run to a collector of this environment's."""
    # This environment's pip is as good as one of its own, which takes as long to install as all the rest.
    subprocess.run([python, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    gpuagent = str(folder / "venv" / "bin" / "gpuagent")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "venv" / "bin" / "python")]
    install = [*pip, "install", "--quiet", "--only-binary=:all:", str(wheel), *pins]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if "(from versions: none)" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    subprocess.run([*pip, "check"], check=True)
    with Node(folder) as node:
        node.serve()
        assert "version" in node.run(gpuagent, "--version").stdout
        node.run(gpuagent, "info")
        assert node.run(gpuagent, "experiment", code=2).stderr.startswith("Usage: gpuagent experiment")
        node.run(gpuagent, "run", "--", "true")
        assert node.ask("SELECT status, exit_code FROM runs") == [{"status": "succeeded", "exit_code": 0}]
        assert node.ask("SELECT count(*) AS n FROM host_samples")[0]["n"] > 0


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info[:2] > NEWEST_PYTHON_OF_LOWEST, reason="the oldest gRPC has no wheels for it")
def test_the_agent_works_with_the_lowest_versions_of_what_it_needs(unpacked: Path, tmp_path: Path) -> None:
    (wheel,) = unpacked.parent.glob("*.whl")
    try_agent(wheel, sys.executable, lowest_versions(unpacked), tmp_path)


@pytest.mark.skipif(not PINS, reason="GPUAGENT_TEST_PINS names no versions, such as grpcio==1.62.3,protobuf==4.25.8")
@pytest.mark.parametrize("python", PYTHONS or [sys.executable])
@pytest.mark.parametrize("pins", PINS)
def test_the_agent_works_with_named_versions(unpacked: Path, python: str, pins: str, tmp_path: Path) -> None:
    (wheel,) = unpacked.parent.glob("*.whl")
    try_agent(wheel, python, pins.split(","), tmp_path)
