"""Print the figures of the code: size, private functions used once, comments, and circles between packages.

`python scripts/code_figures.py [TREE …]` prints a column for each tree, so that two checkouts stand side by side.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path

PACKAGES = ("agent", "collector", "workloads", "proto", "deploy", "scripts")


def python_files(tree: Path, *folders: str) -> list[Path]:
    """Return the Python files of `folders`, without generated ones."""
    found = (path for folder in folders for path in (tree / folder).rglob("*.py"))
    return sorted(path for path in found if "_pb2" not in path.name and "fixtures" not in path.parts)


def comment_lines(text: str) -> int:
    """Return the number of comments, without those that only direct a tool."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = (token.string for token in tokens if token.type == tokenize.COMMENT)
    return sum(not re.match(r"#\s*(noqa|type:|pragma|!)", comment) for comment in comments)


def code_lines(text: str) -> int:
    """Return the number of lines that are neither blank nor a comment alone."""
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("#"))


def circles(root: Path) -> int:
    """Return how many packages and root modules below `root` import one another in a circle."""
    edges: dict[str, set[str]] = {}
    for path in python_files(root, "."):
        inside = path.relative_to(root).parts
        me = edges.setdefault(inside[0].removesuffix(".py"), set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{root.name}."):
                me.add(node.module.split(".")[1])

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = edges.get(waiting.pop(), set()) - seen
            seen |= new
            waiting += new
        return seen - ({start} if start not in edges.get(start, set()) | seen else set())

    return sum(any(name in reached(other) for other in reached(name) - {name}) for name in edges)


def figures(tree: Path) -> dict[str, str]:
    """Return the figures of one checkout, each as text."""
    sources = python_files(tree, *PACKAGES)
    tests = python_files(tree, "tests")
    benchmarks = python_files(tree, "benchmarks")
    if not benchmarks:
        benchmarks = [path for path in tests if "bench" in path.relative_to(tree / "tests").parts[:1]]
        tests = [path for path in tests if path not in benchmarks]
    texts = [path.read_text(encoding="utf-8") for path in sources]
    modules = [ast.parse(text) for text in texts]
    sizes = [text.count("\n") for text in texts]
    packages = ("agent/gpuagent", "collector/gpuagent_collector", "workloads/gpuagent_workloads")
    once = private = 0
    for module in modules:
        names = Counter(
            node.id if isinstance(node, ast.Name) else node.attr
            for node in ast.walk(module)
            if isinstance(node, ast.Name | ast.Attribute)
        )
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and re.match(r"_[a-z]", node.name):
                private += 1
                once += names[node.name] <= 1
    return {
        "source: lines": f"{sum(sizes):,}",
        "source: files": f"{len(sources):,}",
        "source: lines a file, median": str(sorted(sizes)[len(sizes) // 2]),
        "tests: lines": f"{lines_of(tests):,}",
        "tests: files": f"{len(tests):,}",
        "benchmarks: lines": f"{lines_of(benchmarks):,}",
        "private functions used once, %": f"{(100 * once / max(private, 1)):.0f}",
        "comments a code line": f"{sum(map(comment_lines, texts)) / sum(map(code_lines, texts)):.3f}",
        "packages in circles": str(sum(circles(tree / package) for package in packages)),
    }


def lines_of(paths: list[Path]) -> int:
    """Return the number of lines of `paths`."""
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def main() -> None:
    """Print the table."""
    trees = [Path(name) for name in sys.argv[1:]] or [Path(__file__).parent.parent]
    columns = [figures(tree) for tree in trees]
    width = max(map(len, columns[0]))
    for name in columns[0]:
        print(f"{name:{width}}", *(f"{column[name]:>10}" for column in columns))


if __name__ == "__main__":
    main()
