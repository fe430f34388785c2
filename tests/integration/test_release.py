"""What a release holds, as users get it: `make release-check` installs what these tests need."""

import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.servers import BIN

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution, built from the last commit alone."""
    for program in ("twine", "uvx"):
        if not (BIN / program).exists():
            pytest.skip(f"needs {program}; run: make release-check")
    folder = tmp_path_factory.mktemp("release")
    archive = folder / "source.tar"
    subprocess.run(["git", "-C", str(ROOT), "archive", f"--output={archive}", "HEAD"], check=True)
    with tarfile.open(archive) as files:
        files.extractall(folder / "source", filter="data")
    # The wheel is built from the source distribution.
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(folder / "source")]
    subprocess.run(build, check=True, capture_output=True)
    return folder / "dist"


def test_an_index_shows_the_readme_and_the_metadata(dist: Path) -> None:
    files = sorted(map(str, dist.iterdir()))
    done = subprocess.run(
        [str(BIN / "twine"), "check", "--strict", *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_version_is_one(dist: Path) -> None:
    declared = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert declared
    version = declared[1]
    assert {path.name.split("-")[1].removesuffix(".tar.gz") for path in dist.iterdir()} == {version}
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_uvx_comes_from_nothing_to_a_verdict(dist: Path, tmp_path: Path) -> None:
    bench = ["gpuagent", "bench", "--rounds", "4", "-o", "answer.json", "sleep 0.01", "sleep 0.2"]
    command = [str(BIN / "uvx"), "--find-links", str(dist), "--from", "gpuagent[collector]", *bench]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert '"differs"' in (tmp_path / "answer.json").read_text()
