"""`python -m tests.fault.trials`: try every fault many times, by seed, and print what was lost, duplicated, how long.

What happens and when is drawn from the seed; what the processes are just doing then is not.
"""

import argparse
import os
import platform
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psutil

from tests.fault.faults import FAULTS, Fault
from tests.fault.invariants import Findings

HEADER = """\
| fault | trials | lost | duplicated | given up and told | recovery, median | worst |
|---|--:|--:|--:|--:|--:|--:|"""


@dataclass(slots=True, kw_only=True)
class Result:
    name: str
    recovery_seconds: list[float] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    problems: list[str] = field(default_factory=list)

    def row(self) -> str:
        """Return this as a row of the table."""
        seconds = self.recovery_seconds or [float("nan")]
        found = self.findings
        return (
            f"| {self.name} | {len(self.recovery_seconds)} | {len(found.lost)} | {len(found.duplicated)} "
            f"| {found.given_up} | {statistics.median(seconds):.2f} s | {max(seconds):.2f} s |"
        )

    @property
    def is_good(self) -> bool:
        return self.findings.are_none and not self.problems


def try_fault(fault: Fault, *, seed: int, trials: int, folder: Path, deadline_seconds: float = float("inf")) -> Result:
    """Let a fault happen `trials` times in one place, or until the deadline (monotonic), and look after each."""
    result = Result(name=fault.name)
    random = Random(f"{seed} {fault.name}")
    with closing(fault.open(folder)) as place:
        try:
            for _ in range(trials):
                if time.monotonic() > deadline_seconds:
                    break
                fault.happen(place, random)
                result.recovery_seconds.append(place.settle())
                result.findings = place.findings()
                if not result.findings.are_none or (result.findings.given_up and not fault.gives_up):
                    result.problems.append(str(result.findings))
                    break
            result.problems += place.leftovers()
        except Exception as error:  # noqa: BLE001 - one fault's end is not the others'
            result.problems.append(f"{type(error).__name__}: {error}")
    return result


def _try_all(faults: list[Fault], arguments: argparse.Namespace) -> Iterator[Result]:
    deadline = time.monotonic() + arguments.minutes * 60
    with (
        tempfile.TemporaryDirectory(prefix="gpuagent-faults-", ignore_cleanup_errors=True) as folder,
        ThreadPoolExecutor(arguments.jobs) as pool,
    ):

        def work(fault: Fault) -> Result:
            place = Path(folder) / fault.name
            place.mkdir()
            return try_fault(
                fault, seed=arguments.seed, trials=arguments.trials, folder=place, deadline_seconds=deadline
            )

        yield from pool.map(work, faults)


def main() -> None:
    """Try, print each fault's row when it is done, and exit with 1 when anything was found."""
    arguments = _arguments()
    # A shell's background job ignores SIGINT, and so would every program that is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.nice(10)
    faults = [each for each in FAULTS if not arguments.only or each.name in arguments.only]
    print(f"{describe_machine()} Seed {arguments.seed}.", HEADER, sep="\n\n", flush=True)
    results = []
    for result in _try_all(faults, arguments):
        results.append(result)
        print(result.row(), flush=True)
        print(*(f"  {problem}" for problem in result.problems), sep="\n", end="", file=sys.stderr)
    sys.exit(not all(result.is_good for result in results))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Try every fault many times on real processes.")
    parser.add_argument("--seed", type=int, default=1, help="what is drawn: which moments, which side (default: 1)")
    parser.add_argument("--trials", type=int, default=20, help="of each fault (default: 20)")
    parser.add_argument("--only", nargs="+", choices=[each.name for each in FAULTS], metavar="NAME", help="these alone")
    parser.add_argument("--jobs", type=int, default=3, help="faults tried at once (default: 3)")
    parser.add_argument("--minutes", type=float, default=30.0, help="begin no trial after this time (default: 30)")
    return parser.parse_args()


def describe_machine() -> str:
    memory_gib = psutil.virtual_memory().total / 2**30
    day = time.strftime("%Y-%m-%d", time.gmtime())
    return f"{day}: {psutil.cpu_count()} CPUs, {memory_gib:.0f} GiB, Python {platform.python_version()}."


if __name__ == "__main__":
    main()
