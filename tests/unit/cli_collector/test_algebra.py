"""The import of numpy by commands: it starts no threads, and says nothing to further programs."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, sys
from gpuagent_collector.cli.algebra import import_numpy
import_numpy()
print(len(os.listdir("/proc/self/task")), os.environ.get("OPENBLAS_NUM_THREADS"), "numpy" in sys.modules)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="it has no threads of a process")
@pytest.mark.parametrize("given", [{}, {"OPENBLAS_NUM_THREADS": "1"}])
def test_numpy_starts_no_threads_and_the_environment_stays(given: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=given, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", given.get("OPENBLAS_NUM_THREADS", "None"), "True"]
