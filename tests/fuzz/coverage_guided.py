"""Inputs that are kept and changed when they reach code that none before did, by atheris (libFuzzer for Python)."""

import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.fuzz import targets
from tests.fuzz.tally import Tally

# Exit code of a process that found something: 1 is Python's own, of one that broke.
FOUND = 3

_INSTRUMENTED = ["gpuagent", "gpuagent_collector", "gpuagent_workloads", "gpuagent_proto"]


def is_available() -> bool:
    """Tell whether atheris is installed: it is not made for every Python."""
    return importlib.util.find_spec("atheris") is not None


def run_guided(name: str, folder: Path, *, seed_number: int, is_done: Callable[[Tally], bool]) -> None:
    """Give inputs to a target until `is_done`, which must end the process then: libFuzzer cannot be stopped."""
    import atheris

    folder.mkdir(parents=True, exist_ok=True)
    _quieten(folder)
    with atheris.instrument_imports(include=_INSTRUMENTED):
        target = targets.load(name)
    with targets.opened(name) as attempt, tempfile.TemporaryDirectory(prefix="gpuagent-fuzz-") as scratch:
        tally = Tally(attempt=attempt, folder=folder, hang_seconds=targets.hang_seconds(name))

        def give(data: bytes) -> None:
            tally.give(data)
            if is_done(tally):
                sys.stdout.flush()
                os._exit(FOUND if tally.findings else 0)

        atheris.Setup([sys.argv[0], *_options(name, Path(scratch), folder, target.TOKENS, seed_number)], give)
        atheris.Fuzz()


def _options(name: str, scratch: Path, folder: Path, tokens: Sequence[bytes], seed_number: int) -> list[str]:
    words = scratch / "words"
    words.write_text("# libFuzzer wants a line\n" + "".join(f'"{_escaped(token)}"\n' for token in tokens))
    found = scratch / "found"
    found.mkdir()
    # Hanging is watched over by the tally, which needs the alarm for itself.
    limits = ["-max_len=4096", "-timeout=0", "-rss_limit_mb=3000", "-verbosity=0", f"-artifact_prefix={folder}/"]
    return [*limits, f"-seed={seed_number}", f"-dict={words}", str(found), str(targets.CORPUS / name)]


def _quieten(folder: Path) -> None:
    """Let standard error go into a file: libFuzzer and atheris say much, which matters if they end the process."""
    log = os.open(folder / "libfuzzer.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 2)
    os.close(log)


def _escaped(token: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in token)
