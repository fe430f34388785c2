"""Processes killed in the middle of a write: strace counts what they do to their files, and kills at one of these."""

import contextlib
import signal
import subprocess
from pathlib import Path
from random import Random

import psutil

from tests.fault.site import Site
from tests.support.servers import BIN

_CALLS = "write,pwrite64,fsync,fdatasync,ftruncate,rename,unlink"
_MOST_CALLS = 80
# A process that has not come to its call by then is killed as well.
_LONGEST_SECONDS = 8.0


def agent_killed_at_a_write(site: Site, random: Random) -> None:
    """The agent's side is killed at the nth call that changes its spool."""
    site.stop_generator(site.generators[0])
    spool = site.node.folder / site.spool / "spool.sqlite"
    generator = site.start_generator(under=_strace(spool, "-wal", random))
    _wait(generator.process)
    site.stop_generator(generator, signal.SIGKILL)
    site.start_generator()


def collector_killed_at_a_write(site: Site, random: Random) -> None:
    """The collector is killed at the nth call that changes its store, which begins with the log of the one before."""
    site.kill_collector()
    store = site.node.store
    process = site.node.start(
        *_strace(store, ".wal", random),
        *(str(BIN / "collector"), "serve", "--listen", site.address, "--store", str(store)),
        log="traced.log",
    )
    _wait(process)
    site.start_collector()


def _strace(file: Path, log: str, random: Random) -> list[str]:
    paths = ["-P", str(file), "-P", f"{file}{log}"]
    inject = f"inject={_CALLS}:signal=KILL:when={random.randint(1, _MOST_CALLS)}"
    return ["/usr/bin/strace", "-f", "-qq", "-o", "/dev/null", *paths, "-e", f"trace={_CALLS}", "-e", inject]


def _wait(strace: "subprocess.Popen[str]") -> None:
    """Wait until strace has ended, with what it traces; make an end of both when the call does not come."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        strace.wait(_LONGEST_SECONDS)
        return
    for child in psutil.Process(strace.pid).children():
        child.kill()
    strace.wait()
