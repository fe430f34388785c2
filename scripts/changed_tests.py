"""Print the test files that a change touches: those changed, and those that import a changed module.

The change is what differs from BASE (default: main, or HEAD where main is checked out), uncommitted work included.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("agent/", "collector/", "workloads/", "proto/")

# About what runs in two minutes.
MOST = 10


def changed_files(base: str) -> set[str]:
    """Return the paths of files that differ from `base` or are not tracked yet."""
    found: set[str] = set()
    for command in (["diff", "--name-only", "--merge-base", base], ["ls-files", "--others", "--exclude-standard"]):
        listed = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True)
        found.update(listed.stdout.split())
    return found


def module_name(path: str) -> str:
    """Return the name under which the file at `path` is imported; of other files than Python's, their package's."""
    parts = Path(path).with_suffix("").parts if path.endswith(".py") else Path(path).parent.parts
    return ".".join(parts[1:] if path.startswith(SOURCES) else parts).removesuffix(".__init__")


def imported_modules(path: Path) -> set[str]:
    """Return the modules that a file imports; of `from a import b` both `a` and `a.b`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def importers(modules: set[str]) -> set[str]:
    """Return the modules of the source that import one of `modules`."""
    paths = (path for folder in SOURCES for path in (ROOT / folder).rglob("*.py"))
    return {module_name(str(path.relative_to(ROOT))) for path in paths if imported_modules(path) & modules}


def tests_of(changed: set[str], modules: set[str]) -> list[str]:
    """Return the changed test files, and those that import one of `modules`, or shared code that does."""
    tests = sorted((ROOT / "tests").rglob("*.py"))
    shared = {path for path in tests if not path.name.startswith("test_") and imported_modules(path) & modules}
    reached = modules | {module_name(str(path.relative_to(ROOT))) for path in shared if path.name != "conftest.py"}
    named = {str(path.relative_to(ROOT)): path for path in tests if path.name.startswith("test_")}
    return [name for name, path in named.items() if name in changed or imported_modules(path) & reached]


def words(path: str) -> set[str]:
    """Return the words of a path."""
    return set(re.split(r"[/_.]", path))


def main() -> None:
    """Print the paths, one a line: at most MOST, those nearest to the change by their names."""
    head = subprocess.run(["git", "branch", "--show-current"], cwd=ROOT, capture_output=True, text=True, check=True)
    base = sys.argv[1] if len(sys.argv) > 1 else "HEAD" if head.stdout.strip() == "main" else "main"
    changed = {path for path in changed_files(base) if (ROOT / path).exists()}
    modules = set(map(module_name, changed))
    # What no test imports is tested through the modules that import it.
    while not (found := tests_of(changed, modules)) and (more := importers(modules) - modules):
        modules |= more
    of_change = set().union(*map(words, changed))
    found.sort(key=lambda path: (path not in changed, -len(words(path) & of_change)))
    print(*found[:MOST], sep="\n")
    if found[MOST:]:
        print(f"{len(found[MOST:])} more files import what changed; `make test-all` runs them", file=sys.stderr)


if __name__ == "__main__":
    main()
