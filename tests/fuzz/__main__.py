"""Fuzz: `python -m tests.fuzz [TARGET…] [--inputs N] [--seconds S] [--seed N]`. Exit code 1: something was found."""

import argparse
import itertools
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.fuzz import coverage_guided, targets
from tests.fuzz.examples import run_examples
from tests.fuzz.tally import Tally

# Inputs that hypothesis makes at once; it remembers them.
_A_ROUND = 10_000


def main() -> int:
    """Fuzz targets one after the other, each in a process of its own, which libFuzzer may end."""
    wanted = _arguments()
    if wanted.here:
        return _fuzz(wanted.targets[0], wanted)
    try:
        return max([_in_a_process(name, wanted) for name in wanted.targets or targets.TARGETS])
    except KeyboardInterrupt:
        return 130


def _in_a_process(name: str, wanted: argparse.Namespace) -> int:
    options = [f"--{option}={getattr(wanted, option)}" for option in ("inputs", "seconds", "seed", "findings")]
    code = subprocess.run([sys.executable, "-m", "tests.fuzz", name, "--here", *options], check=False).returncode
    if code not in (0, coverage_guided.FOUND):
        print(f"{name:<12}ended with {code}; libfuzzer.log, and mostly the input, are in {wanted.findings / name}")
    return 1 if code else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"one of: {', '.join(targets.TARGETS)}; none: all")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="so many for each target (%(default)s)")
    parser.add_argument("--seconds", type=float, default=360.0, help="or so long for each target (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of what is tried (%(default)s)")
    parser.add_argument(
        "--findings",
        type=Path,
        default=Path("fuzz-findings"),
        help="folder for inputs that broke something (%(default)s)",
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if unknown := set(wanted.targets) - set(targets.TARGETS):
        parser.error(f"there is no target {min(unknown)}; there are {', '.join(targets.TARGETS)}")
    return wanted


def _fuzz(name: str, wanted: argparse.Namespace) -> int:
    def is_done(tally: Tally) -> bool:
        if tally.inputs < wanted.inputs and tally.seconds < wanted.seconds:
            return False
        _tell(name, tally)
        return True

    logging.disable()
    folder = (wanted.findings / name).absolute()  # a target may go elsewhere
    if coverage_guided.is_available():
        coverage_guided.run_guided(name, folder, seed_number=wanted.seed, is_done=is_done)
    return _unguided(name, folder, wanted, is_done)


def _unguided(name: str, folder: Path, wanted: argparse.Namespace, is_done: Callable[[Tally], bool]) -> int:
    """Fuzz without coverage, which takes far longer to get anywhere."""
    print("atheris is not installed (pip install '.[fuzz]'), so coverage does not guide this:", flush=True)
    target, corpus = targets.load(name), targets.corpus(name)
    with targets.opened(name) as attempt:
        tally = Tally(attempt=attempt, folder=folder, hang_seconds=targets.hang_seconds(name))
        for round_number in itertools.count(wanted.seed):
            examples = min(_A_ROUND, wanted.inputs - tally.inputs)
            run_examples(tally.give, corpus, target.TOKENS, examples=examples, seed_number=round_number)
            if is_done(tally):
                break
    return coverage_guided.FOUND if tally.findings else 0


def _tell(name: str, tally: Tally) -> None:
    rate = tally.inputs / tally.seconds
    figures = f"{tally.inputs:>10,} inputs {tally.seconds:>6.0f} s {rate:>9,.0f}/s {len(tally.findings):>3} findings"
    print(f"{name:<12}{figures}")
    for place, words in tally.findings.items():
        print(f"  {place}: {words!a}")


if __name__ == "__main__":
    sys.exit(main())
