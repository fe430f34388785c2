"""Output into a file on a full disk, by a limit of file sizes, which a program meets as it meets the disk's end."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from gpuagent_collector.trust.private_files import ensure_token
from gpuagent_common.errors import GpuAgentError

LIMITED = """import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
from gpuagent_collector.cli import main
main()"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("output_format", ["csv", "json", "table"])
def test_an_answer_that_fills_the_disk_fails_in_one_line(tmp_path: Path, output_format: str, unbuffered: str) -> None:
    # Python drops what a short write leaves over where its output is unbuffered, and the last buffer on exit.
    command = [sys.executable, "-c", LIMITED, "schema", "--all", "--format", output_format]
    with (tmp_path / "out").open("w") as out:
        environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert (tmp_path / "out").stat().st_size == 4096
    assert (done.returncode, done.stderr) == (1, "collector: cannot write the output or a file: File too large\n")


def test_a_token_that_the_disk_does_not_hold_leaves_no_empty_file(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))
    try:
        with pytest.raises(GpuAgentError, match="make the token"):
            ensure_token(tmp_path / "token")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())
