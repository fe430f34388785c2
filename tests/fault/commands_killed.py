"""Trials of commands that change or copy a store, killed at their nth call that changes a file.

`python -m tests.fault.commands_killed --calls 40 --only restore`; needs strace. After each kill the store must have the
rows from before or those from after the command, which then runs again to its end.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuagent_collector.store import Store
from tests.integration.exchange.conftest import two_nodes
from tests.integration.exchange.sites import content, write_site
from tests.support.servers import BIN

_CALLS = "write,pwrite64,fsync,fdatasync,ftruncate,rename,unlink,copy_file_range,sendfile,chmod,link,mkdir"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command on the stores `site` and `other` in a folder, with `copy`, a backup of the site, and `export`."""

    name: str
    words: Sequence[str]
    # What it changes, in a folder; it may be missing, before or after.
    target: str
    # Whether it makes a new file, and refuses one that is there.
    is_copy: bool = False


def _prepare(folder: Path) -> None:
    write_site(str(folder / "site"), two_nodes)
    for words in (("backup", "copy"), ("export", "--parquet", "export")):
        _run(folder, (*words, "--store", "site"))
    shutil.copy(folder / "site", folder / "other")
    _run(folder, ("delete", "--experiment", "gan", "--yes", "--store", "other"))


_COMMANDS = (
    Command(name="backup", words=("backup", "made", "--store", "site"), target="made", is_copy=True),
    Command(name="restore", words=("restore", "copy", "--store", "other"), target="other"),
    Command(name="import", words=("import", "export", "--store", "other"), target="other"),
    Command(name="import new", words=("import", "export", "--store", "made"), target="made"),
    Command(name="delete", words=("delete", "--experiment", "gan", "--yes", "--store", "site"), target="site"),
)


def _run(folder: Path, words: Sequence[str], under: Sequence[str] = ()) -> int:
    command = [*under, str(BIN / "collector"), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode


def _state(folder: Path, command: Command) -> Mapping[str, object]:
    """Return the rows of the target by table, without empty tables and the versions of the schema."""
    path = folder / command.target
    if not path.exists():
        return {}
    Store.open(str(path)).close()  # takes in what a killed process left in the log
    return {table: rows for table, rows in content(str(path)).items() if rows and table != "schema_migrations"}


def try_command(command: Command, prepared: Path, folder: Path, calls: Sequence[int]) -> list[str]:
    """Kill a command at each of these calls; return what went wrong, and print how often it was killed."""
    finished = folder / "finished"
    shutil.copytree(prepared, finished)
    before = _state(finished, command)
    assert _run(finished, command.words) == 0, command.name
    after, wrong, killed = _state(finished, command), list[str](), 0
    for call in calls:
        place = folder / str(call)
        shutil.copytree(prepared, place)
        inject = f"inject={_CALLS}:signal=KILL:when={call}"
        # strace counts the calls of each thread: DuckDB has none beside the first on one CPU.
        under = [
            "taskset",
            "--cpu-list",
            "0",
            "strace",
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            f"trace={_CALLS}",
            "-e",
            inject,
        ]
        killed += _run(place, command.words, under) != 0
        found = _state(place, command)
        if found not in (before, after):
            wrong.append(f"{command.name} at call {call}: neither the rows before nor those after")
        if command.is_copy and found == after:
            (place / command.target).unlink()
        # What is removed is not found a second time.
        if (_run(place, command.words) != 0 and found != after) or _state(place, command) != after:
            wrong.append(f"{command.name} at call {call}: the next attempt failed")
        shutil.rmtree(place)
    print(f"{command.name}: {len(calls)} trials, killed {killed}, wrong {len(wrong)}", flush=True)  # noqa: T201
    return wrong


def main() -> int:
    """Run the trials of the command line; return 1 if any lost rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=40, help="Kill at every call up to this one.")
    parser.add_argument("--step", type=int, default=1, help="Of these, each so-many-th.")
    parser.add_argument("--first", type=int, default=1, help="The first call to kill at.")
    parser.add_argument("--only", nargs="*", default=())
    given = parser.parse_args()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        prepared = Path(name, "prepared")
        prepared.mkdir()
        _prepare(prepared)
        for command in _COMMANDS:
            if not given.only or command.name in given.only:
                folder = Path(name, command.name)
                folder.mkdir()
                wrong += try_command(command, prepared, folder, range(given.first, given.calls + 1, given.step))
    print(*wrong, sep="\n")  # noqa: T201
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
