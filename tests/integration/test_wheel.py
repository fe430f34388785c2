"""The wheel is what users get: it holds every file of the packages, and works without the source tree."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

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
    assert "Print the completion script of a shell." in done.stdout


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
        assert "Comparison by label:side: left, right" in node.run(collector, "compare", "--by", "label:side").stdout
        node.run(collector, "report", "report.html", "--by", "label:side")
        assert "<h2" in (tmp_path / "report.html").read_text()
