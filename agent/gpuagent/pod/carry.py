"""Copies a gpuagent that needs nothing of an image: `python3 -I -m gpuagent.pod.carry FOLDER`, in the agent's image.

FOLDER gets a Python with its library, the agent's packages, every shared library of both, and the loader that starts
them. So the C library of the other image does not matter, nor whether it has a shell or a Python.
"""

import importlib.metadata
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

# Parts of Python's library that the agent never imports.
_LEFT_OUT = ("test", "idlelib", "tkinter", "_tkinter*", "turtledemo", "ensurepip", "lib2to3", "*-packages", "config-*")

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def main(folder: Path) -> None:
    """Fill `folder`, which exists."""
    python, library = Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib"))
    # Python finds its library by the same way from its program.
    copied = folder / "python" / library.relative_to(sys.base_prefix)
    shutil.copytree(library, copied, ignore=shutil.ignore_patterns(*_LEFT_OUT), symlinks=True)
    (folder / "python/bin").mkdir()
    shutil.copy(python, folder / "python/bin/python3")
    name = "gpuagent"
    target = folder / "packages"
    waiting, seen = [name], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another Python or system
        for file in found.files or ():
            place = target / file
            if ".." not in file.parts and file.locate().is_file():  # type: ignore[attr-defined]
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(str(file.locate()), place)
        needed = (requirement for requirement in found.requires or () if "extra ==" not in requirement)
        waiting += [match[0] for requirement in needed if (match := _NAME.match(requirement))]
    loader = _loader(python)
    shutil.copy(loader, folder / "ld.so")
    (folder / "lib").mkdir()
    extensions = [*copied.rglob("*.so"), *(folder / "packages").rglob("*.so*")]
    for path in set(_libraries(loader, [python, *extensions])):
        shutil.copy(path, folder / "lib" / path.name)


def _loader(program: Path) -> Path:
    """Return the loader that a program names: the segment PT_INTERP of its ELF header."""
    content = program.read_bytes()
    order = "little" if content[5] == 1 else "big"

    def number(at: int, size: int) -> int:
        return int.from_bytes(content[at : at + size], order)  # type: ignore[arg-type]

    table, size, count = number(32, 8), number(54, 2), number(56, 2)
    for at in range(table, table + size * count, size):
        if number(at, 4) == 3:
            start = number(at + 8, 8)
            return Path(content[start : start + number(at + 32, 8)].rstrip(b"\0").decode())
    raise SystemExit(f"gpuagent: {program} names no loader")


def _libraries(loader: Path, programs: Iterable[Path]) -> Iterator[Path]:
    """Yield the shared libraries of programs outside of them, as the loader finds them here."""
    for program in programs:
        done = subprocess.run([loader, "--list", program], capture_output=True, text=True, check=False)
        for line in done.stdout.splitlines():
            _, arrow, found = line.partition(" => ")
            path = Path(found.partition(" (")[0])
            if arrow and path.is_file():
                yield path


if __name__ == "__main__":
    main(Path(sys.argv[1]))
