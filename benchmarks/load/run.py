"""Runs a load and prints what it measured: `python -m benchmarks load --agents 1000 --minutes 30`."""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from benchmarks.load.peer import measure as measure_peer
from benchmarks.load.plan import Timeline, draw_nodes
from benchmarks.load.report import Measured, remarks, table
from benchmarks.load.site import LoadSite
from benchmarks.load.verify import Verdict, verify
from benchmarks.machine import describe, show
from gpuagent_collector.server.app import raise_file_limit

_READ_SECONDS = 1.0
_TOLD_SECONDS = 60.0
# How long to wait for connections and for the last acknowledgements.
_PATIENCE_SECONDS = 300.0


def main(arguments: Sequence[str]) -> None:
    """Run the load of the arguments; exit with 1 if anything was lost, duplicated, rejected or undelivered."""
    chosen = _parser().parse_args(arguments)
    # A shell's background job ignores SIGINT; no process may be left in any case.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    raise_file_limit()
    try:
        with tempfile.TemporaryDirectory(prefix="gpuagent-load-", dir=chosen.folder) as folder:
            sys.exit(not _run(Path(folder), chosen))
    except KeyboardInterrupt:
        print("interrupted; everything that was started has ended", file=sys.stderr)
        sys.exit(130)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks load", description="Load one collector with agents.")
    parser.add_argument("--agents", type=int, default=1000, help="simulated agents, one per node (default: 1000)")
    parser.add_argument("--minutes", type=float, default=30.0, help="minutes of samples (default: 30)")
    parser.add_argument("--rate", type=float, default=1.0, help="samples a second of host and GPUs (default: 1)")
    parser.add_argument(
        "--processes", type=int, default=3, help="processes of agents, plus one of stalled ones (default: 3)"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of faults, GPUs and values (default: 1)")
    parser.add_argument("--memory", type=float, default=1.0, help="memory limit of the store in GiB (default: 1)")
    parser.add_argument("--calm", action="store_true", help="no faults, and figures by quarter: is memory flat?")
    parser.add_argument("--flush", type=float, default=1.0, help="seconds between messages of an agent (default: 1)")
    parser.add_argument("--folder", type=Path, help="folder of the store (default: the system's)")
    return parser


def _run(folder: Path, chosen: argparse.Namespace) -> bool:
    """Run the load; return whether everything acknowledged is stored once, and nothing was given up."""
    start_unix_micros = time.time_ns() // 1000
    nodes = draw_nodes(
        chosen.agents, seed=chosen.seed, rate_hz=chosen.rate, start_unix_micros=start_unix_micros, calm=chosen.calm
    )
    measured = Measured(timeline=Timeline(seconds=chosen.minutes * 60, calm=chosen.calm), nodes=nodes)
    with closing(LoadSite(folder, memory_gib=chosen.memory)) as site:
        site.connect(nodes, processes=chosen.processes, seed=chosen.seed, flush_seconds=chosen.flush)
        _Run(site, measured).go()
        site.stop_collector()
        verdict = verify(site.node.store, nodes, measured.tallies)
    peer = measure_peer(folder / "peer", nodes, chosen.seed)
    print(f"{describe()}\n")
    show(table(measured, peer))
    print("", *remarks(measured, verdict), sep="\n")
    return _is_good(verdict, measured)


def _is_good(verdict: Verdict, measured: Measured) -> bool:
    return verdict.is_good and not any(tally.rejections for tally in measured.tallies.values())


class _Run:
    """The conductor of a load run."""

    def __init__(self, site: LoadSite, measured: Measured) -> None:
        self._site = site
        self._measured = measured
        self._slowed = self._restarted = False
        self._told_seconds = 0.0

    def go(self) -> None:
        """Connect, sample, make trouble, and wait until everything is acknowledged."""
        measured, site = self._measured, self._site
        measured.connected_seconds = self._wait(lambda: site.disconnected() == 0, "all agents to be connected")
        _tell(f"connected in {measured.connected_seconds:.1f} s")
        measured.began_seconds = time.monotonic()
        site.begin()
        while (second := time.monotonic() - measured.began_seconds) < measured.timeline.seconds:
            self._at(second)
            time.sleep(_READ_SECONDS)
        site.slow_down(False)
        site.stall(False)  # who is stopped answers nothing, and the last look may have stopped them
        site.end()
        measured.drained_seconds = self._wait(lambda: site.waiting() == 0, "the last acknowledgements")
        measured.tallies = site.tallies()

    def _at(self, second: float) -> None:
        """Do what is due, and look at the collector."""
        timeline, site = self._measured.timeline, self._site
        site.check()
        if not self._restarted and second >= timeline.restart:
            self._restarted = True
            self._restart()
        site.stall(timeline.stalled_at(second))
        if second >= timeline.trouble and not self._slowed:
            self._slowed = True
            site.slow_down(True)
        reading = site.reading()
        self._measured.readings.append(reading)
        if second >= self._told_seconds:
            self._told_seconds += _TOLD_SECONDS
            _tell(f"{second:,.0f} s: collector {reading.rss_mib:,.1f} MiB, {reading.files:,} files")

    def _restart(self) -> None:
        killed_seconds = time.monotonic()
        self._site.restart_collector()
        self._wait(lambda: self._site.disconnected() == 0, "agents to come back")
        self._measured.reconnected_seconds = time.monotonic() - killed_seconds
        self._slowed = False  # the slow network's connections are new ones
        _tell(f"all back {self._measured.reconnected_seconds:.1f} s after the collector was killed")

    def _wait(self, condition: Callable[[], bool], what: str) -> float:
        """Wait for a condition; return the seconds waited."""
        began_seconds = time.monotonic()
        while not condition():
            self._site.check()
            if time.monotonic() - began_seconds > _PATIENCE_SECONDS:
                raise RuntimeError(f"waited {_PATIENCE_SECONDS:.0f} s for {what}")
            time.sleep(0.1)
        return time.monotonic() - began_seconds


def _tell(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
