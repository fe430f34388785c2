"""Print the test files that a change touches: those changed, and those that import a changed module.

The change is what differs from BASE (default: main, or HEAD where main is checked out), uncommitted work included.
"""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("agent/", "collector/", "workloads/", "proto/")


def changed_files(base: str) -> set[str]:
    """Return the paths of Python files that differ from `base` or are not tracked yet."""
    found: set[str] = set()
    for command in (["diff", "--name-only", "--merge-base", base], ["ls-files", "--others", "--exclude-standard"]):
        listed = subprocess.run(["git", *command, "--", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
        found.update(listed.stdout.split())
    return found


def module_name(path: str) -> str:
    """Return the name under which the file at `path` is imported."""
    parts = Path(path).with_suffix("").parts
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


def main() -> None:
    """Print the paths, one a line."""
    head = subprocess.run(["git", "branch", "--show-current"], cwd=ROOT, capture_output=True, text=True, check=True)
    base = sys.argv[1] if len(sys.argv) > 1 else "HEAD" if head.stdout.strip() == "main" else "main"
    changed = {path for path in changed_files(base) if (ROOT / path).exists()}
    modules = set(map(module_name, changed))
    tests = sorted((ROOT / "tests").rglob("*.py"))
    # What tests share counts as changed where it imports something that has changed.
    shared = {path for path in tests if not path.name.startswith("test_") and imported_modules(path) & modules}
    modules |= {module_name(str(path.relative_to(ROOT))) for path in shared if path.name != "conftest.py"}
    for path in tests:
        name = str(path.relative_to(ROOT))
        if path.name.startswith("test_") and (name in changed or imported_modules(path) & modules):
            print(name)


if __name__ == "__main__":
    main()
