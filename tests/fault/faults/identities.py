"""Agents that are not who they seem: one identity twice, spools copied."""

import shutil
import sqlite3
import time
from contextlib import closing
from random import Random

from tests.fault.site import Site


def two_agents_with_one_identity(site: Site, random: Random) -> None:
    """Another agent of the same node delivers at the same time, from a spool of its own."""
    _run_beside(site, "other", random)


def spool_cloned(site: Site, random: Random) -> None:
    """A copy of the spool, made in mid-run, is delivered by another agent at the same time."""
    time.sleep(random.uniform(0.0, 0.3))
    _copy(site, "other")
    _run_beside(site, "other", random)


def spool_restored(site: Site, random: Random) -> None:
    """An older copy of the spool takes its place, with messages that have long been delivered."""
    if random.random() < 0.5:
        site.proxy.refuse()  # so that the copy has messages in it
        site.proxy.cut()
        time.sleep(random.uniform(0.1, 0.5))
    _copy(site, "older")
    site.proxy.refuse()
    site.proxy.listen()
    time.sleep(random.uniform(0.0, 0.3))
    site.settle()
    site.stop_generator(site.generators[0])
    shutil.rmtree(site.node.folder / site.spool)
    (site.node.folder / "older").rename(site.node.folder / site.spool)
    site.start_generator()


def _run_beside(site: Site, spool: str, random: Random) -> None:
    other = site.start_generator(spool)
    time.sleep(random.uniform(0.2, 1.0))
    site.stop_generator(other)
    while _waiting(site, spool):  # it was just reconnecting: another agent of the node delivers the rest
        other = site.start_generator(spool)
        site.settle()
        site.stop_generator(other)
    shutil.rmtree(site.node.folder / spool)


def _waiting(site: Site, spool: str) -> int:
    with closing(sqlite3.connect(site.node.folder / spool / "spool.sqlite")) as connection:
        return int(connection.execute("SELECT count(*) FROM messages").fetchone()[0])


def _copy(site: Site, name: str) -> None:
    """Copy the spool's files one after the other, as `cp` does, while they are written."""
    target = site.node.folder / name
    target.mkdir(mode=0o700)
    for suffix in ("", "-wal"):
        shutil.copy(site.node.folder / site.spool / f"spool.sqlite{suffix}", target)
