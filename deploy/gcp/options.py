"""Options, signals and exit codes shared by the scripts."""

import argparse
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from deploy.gcp.accelerators import ACCELERATORS, find_accelerator
from deploy.gcp.gcloud import say
from deploy.kubernetes.problems import DeployError, MisuseError

ROOT = Path(__file__).resolve().parents[2]
# In the user's home: the output after the terminal was closed.
HANG_UP_FILE = "gpuagent-hangup.log"


def parser(description: str | None, examples: str) -> argparse.ArgumentParser:
    """Return a parser with --project and --dry-run that prints its description and examples unchanged."""
    raw = argparse.RawDescriptionHelpFormatter
    options = argparse.ArgumentParser(description=description, epilog=examples, formatter_class=raw, allow_abbrev=False)
    options.add_argument("--project", metavar="ID", help="project (default: gcloud's)")
    options.add_argument("--dry-run", action="store_true", help="print commands that change something, run none")
    return options


def machine_parser(description: str | None, examples: str) -> argparse.ArgumentParser:
    """Return a parser with the options of a machine too; some have a second spelling, as in the studies' scripts."""
    options = parser(description, examples)
    names, add = ", ".join(each.name for each in ACCELERATORS), options.add_argument
    spellings = ("--accelerator-type", "--accelerator_type")
    add(*spellings, dest="accelerator", type=find_accelerator, required=True, metavar="GPU", help=f"one of {names}")
    add("--count", type=positive, default=1, metavar="N", help="GPUs per machine (default 1)")
    add("--machine-type", "--machine_type", metavar="TYPE", help="default: the smallest with so many GPUs")
    for name in ("--region", "--zone"):
        add(name, action="append", default=[], metavar="NAME", help="look only there, in the given order; repeatable")
    add("--spot", action="store_true", help="Spot machines: cheaper, can be stopped at any time")
    add("--patience", type=float, default=0.0, metavar="MINUTES", help="how long to look when all is out of stock")
    return options


def parse_machine(options: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options with the machine type; exit with 2 if no machine has so many GPUs."""
    given = options.parse_args(arguments)
    types = given.accelerator.machine_types
    given.machine_type = given.machine_type or types.get(given.count)
    if not given.machine_type:
        options.error(f"a node has {' or '.join(map(str, types))} of {given.accelerator.name}, not {given.count}")
    return given


def positive(text: str) -> int:
    """Return a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def finish(run: Callable[[Sequence[str]], None], arguments: Sequence[str]) -> int:
    """Run a script with these arguments; return its exit code: 0 done, 1 failed, 2 misuse, 130 interrupted."""
    try:
        run(arguments)
    except DeployError as error:
        sys.stdout.flush()
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        return 2 if isinstance(error, MisuseError) else 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    return 0


def main(run: Callable[[Sequence[str]], None]) -> int:
    """Run a script with the program's arguments; return its exit code. SIGTERM cleans up as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # nohup ignores SIGHUP; keep it so.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _hang_up)
    return finish(run, sys.argv[1:])


def _hang_up(_number: int, _frame: FrameType | None) -> NoReturn:
    """Clean up as after Ctrl-C when the terminal is closed, with the output in a file."""
    # The shell and the kernel may both send it, and gcloud must continue to delete.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    try:
        log = os.open(Path.home() / HANG_UP_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except (OSError, RuntimeError):
        log = 0  # a home that cannot be written must not stop the clean-up
    os.dup2(log, 1)
    os.dup2(log, 2)
    say(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {shlex.join(sys.argv)}: the terminal was closed")
    raise KeyboardInterrupt
