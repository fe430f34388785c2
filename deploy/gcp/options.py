"""Options that the scripts share, and how they end."""

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

from deploy.gcp.accelerators import ACCELERATORS
from deploy.gcp.gcloud import say
from deploy.kubernetes.problems import DeployError, MisuseError

# In the user's home: what is said after the terminal was closed.
HANG_UP_FILE = "gpuagent-hangup.log"


def parser(description: str, examples: str) -> argparse.ArgumentParser:
    """Return a parser that shows its description and examples as they are written."""
    return argparse.ArgumentParser(
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_machine_options(options: argparse.ArgumentParser, platform: str) -> None:
    """Add what a machine with GPUs needs to be told; some options can also be spelt as in the studies' scripts."""
    names = ", ".join(accelerator.name for accelerator in ACCELERATORS if not accelerator.instead)
    options.add_argument(
        "--accelerator-type", "--accelerator_type", required=True, metavar="GPU", help=f"one of {names}"
    )
    options.add_argument("--count", type=positive, default=1, metavar="N", help="GPUs a machine (default 1)")
    options.add_argument(
        "--machine-type", "--machine_type", metavar="TYPE", help="by default the smallest with so many GPUs"
    )
    options.add_argument(
        "--region",
        action="append",
        default=[],
        metavar="REGION",
        help="look only there, in this order; may be repeated",
    )
    options.add_argument(
        "--zone", action="append", default=[], metavar="ZONE", help="look only there, in this order; may be repeated"
    )
    options.add_argument("--spot", action="store_true", help="Spot machines: cheaper, and taken away at any time")
    options.add_argument(
        "--patience",
        type=minutes,
        default=0.0,
        metavar="MINUTES",
        help="go on looking so long when all is out of stock",
    )
    options.add_argument(
        "--platform",
        default=platform,
        metavar="NAME",
        help=f"what runs there are called in comparisons (default {platform})",
    )
    options.add_argument("--prices", type=Path, metavar="FILE", help="your prices, to show what an hour costs")


def add_project_options(options: argparse.ArgumentParser) -> None:
    """Add whose project it is, and trying without doing."""
    options.add_argument("--project", metavar="ID", help="by default the one that gcloud is set to")
    options.add_argument(
        "--dry-run", action="store_true", help="print the commands that would change something, and run none of them"
    )


def positive(text: str) -> int:
    """Return a whole number from 1.

    Raises:
        ArgumentTypeError: it is none.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)


def minutes(text: str) -> float:
    """Return minutes, at least none.

    Raises:
        ValueError: it is no such number.
    """
    if not 0 <= (number := float(text)) < float("inf"):
        raise ValueError(text)
    return number


def confirm(text: str) -> None:
    """Tell what would be deleted, and ask whether to go on.

    Raises:
        KeyboardInterrupt: no, or nobody is there who could answer.
    """
    say(text)
    try:
        answer = input("Delete it? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise KeyboardInterrupt


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
    """Run a script with the program's arguments; return its exit code. Being terminated is as Ctrl-C: it cleans up."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # nohup has it ignored, and that is what whoever says nohup wants.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _hang_up)
    return finish(run, sys.argv[1:])


def _hang_up(_number: int, _frame: FrameType | None) -> NoReturn:
    """The terminal is gone: clean up as after Ctrl-C, and tell a file what would have been told there.

    Raises:
        KeyboardInterrupt: always.
    """
    # The shell and the kernel may both say so, and gcloud is to go on deleting all the same.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    words = _hang_up_file() or nothing
    for instead, stream in ((nothing, 0), (words, 1), (words, 2)):
        os.dup2(instead, stream)
    say(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {shlex.join(sys.argv)}: the terminal was closed")
    raise KeyboardInterrupt


def _hang_up_file() -> int | None:
    """Open the file; None: it cannot be written, and cleaning up does not depend on it."""
    try:
        return os.open(Path.home() / HANG_UP_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except (OSError, RuntimeError):
        return None
