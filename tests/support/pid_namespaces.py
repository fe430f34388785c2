"""PID namespaces: made-up trees of /proc as seen from one, and programs run in a real one."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.trees import plant

INITIAL, OTHER = "pid:[4026531836]", "pid:[4026532999]"


def plant_view(proc: Path, *numbers: int, of_host: bool) -> Path:
    """Make `proc` look as to a process that has these numbers, from the namespace of `proc` down to its own."""
    in_initial = of_host and len(numbers) == 1
    plant(proc, {"self/status": f"NSpid:\t{' '.join(map(str, numbers))}\n"})
    (proc / "self/ns").mkdir(exist_ok=True)
    (proc / "self/ns/pid").symlink_to(INITIAL if in_initial else OTHER)
    if of_host and not in_initial:
        plant(proc, {"2/comm": "kthreadd\n"})
    return proc


def plant_process(proc: Path, *numbers: int, parent: int = 1, uses_cuda: bool = False, name: str = "python") -> None:
    pid, listed = numbers[0], " ".join(map(str, numbers))
    plant(
        proc,
        {
            "loadavg": f"0 0 0 1/9 {pid}\n",
            f"{pid}/comm": f"{name}\n",
            f"{pid}/stat": f"{pid} ({name}) S {parent} 1 1 0 -1 0 0 0 0 0 1 0 0 0 20 0 3 0 77{' 0' * 30}\n",
            f"{pid}/status": f"Name:\t{name}\nTgid:\t{pid}\nPPid:\t{parent}\nNSpid:\t{listed}\n",
        },
    )
    (proc / f"{pid}/fd").mkdir()
    (proc / f"{pid}/fd/3").symlink_to("/dev/nvidia-uvm" if uses_cuda else "/dev/null")


def run_inside(program: str, *arguments: str, own_proc: bool) -> str:
    """Return what a Python program prints in a new PID namespace, with that namespace's /proc or the old one."""
    unshare = ["unshare", "--pid", "--fork", *(["--mount-proc"] if own_proc else [])]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make PID namespaces")
    command = [*unshare, sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
