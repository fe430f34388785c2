"""Processes that are killed, also in mid-run and in mid-write, suspended, away, or of another version."""

import contextlib
import signal
import subprocess
import time
from pathlib import Path
from random import Random

import duckdb
import psutil

from tests.fault.agent_site import AgentSite
from tests.fault.site import Site
from tests.support.servers import BIN, LIMIT_SECONDS, until

_SMALL_BYTES = 64 * 1024


def kill_collector(site: Site, random: Random) -> None:
    time.sleep(random.uniform(0.0, 0.5))
    site.kill_collector()
    site.start_collector()


def kill_agent(site: Site, random: Random) -> None:
    time.sleep(random.uniform(0.0, 0.5))
    site.kill_generator(site.generators[0])


def kill_both(site: Site, random: Random) -> None:
    time.sleep(random.uniform(0.0, 0.5))
    if random.random() < 0.5:
        site.kill_collector()
        site.kill_generator(site.generators[0])
    else:
        site.stop_generator(site.generators[0], signal.SIGKILL)
        site.kill_collector()
        site.start_generator()
    site.start_collector()


def suspend_collector(site: Site, random: Random) -> None:
    _suspend(site.collector.pid, random)


def suspend_agent(site: Site, random: Random) -> None:
    _suspend(site.generators[0].process.pid, random)


def suspend_either_for_a_minute(site: Site, random: Random) -> None:
    """Longer than either side waits for the other's answer."""
    _suspend(random.choice([site.collector.pid, site.generators[0].process.pid]), random, (60.0, 75.0))


def _suspend(pid: int, random: Random, seconds: tuple[float, float] = (0.2, 1.5)) -> None:
    process = psutil.Process(pid)
    time.sleep(random.uniform(0.0, 0.3))
    process.suspend()
    time.sleep(random.uniform(*seconds))
    process.resume()


def collector_away_for_long(site: Site, random: Random) -> None:
    """The collector is away until the spool, a small one, has been filled more than once."""
    site.stop_generator(site.generators[0])
    site.kill_collector()
    generator = site.start_generator(limit_bytes=_SMALL_BYTES)
    time.sleep(random.uniform(3.0, 6.0))
    site.start_collector()
    site.settle()
    site.stop_generator(generator)
    site.start_generator()


def kill_agent_in_mid_run(site: AgentSite, random: Random) -> None:
    """Kill the agent; its workload ends with it, and the next agent tells how far that came."""
    run = site.start_run(random.randrange(100))
    site.kill_agent()
    run.wait(LIMIT_SECONDS)
    site.start_agent()


def kill_workload(site: AgentSite, random: Random) -> None:
    run = site.start_run(random.randrange(100))
    site.workload().kill()
    until(lambda: run.poll() is not None, "the run's end")


def kill_collector_in_mid_run(site: AgentSite, random: Random) -> None:
    run = site.start_run(random.randrange(100))
    site.node.stop(site.collector, signal.SIGKILL)
    if random.random() < 0.5:
        run.send_signal(signal.SIGINT)
    site.collector = site.node.serve(site.address)
    if run.poll() is None:
        run.send_signal(signal.SIGINT)
    run.wait(LIMIT_SECONDS)


_NEWER = "INSERT INTO schema_migrations VALUES (999, '0999_later.sql', now()::TIMESTAMP)"
_OLDER = "DELETE FROM schema_migrations WHERE version = 999"


def collector_downgraded(site: Site, random: Random) -> None:
    """The store was written by a newer collector: this one refuses in words, until it is upgraded again."""
    site.kill_collector()
    _change(site, _NEWER)
    store = str(site.node.store)
    refused = site.node.run("collector", "serve", "--listen", site.address, "--store", store, code=1)
    assert "newer collector" in refused.stderr, refused.stderr
    _change(site, _OLDER)
    site.start_collector()


def _change(site: Site, sql: str) -> None:
    with duckdb.connect(str(site.node.store)) as connection:
        connection.execute(sql)


_CALLS = "write,pwrite64,fsync,fdatasync,ftruncate,rename,unlink"
_MOST_CALLS = 80
# A process that has not come to its call by then is killed as well.
_LONGEST_SECONDS = 8.0


def agent_killed_at_a_write(site: Site, random: Random) -> None:
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
