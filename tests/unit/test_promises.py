"""The tables of docs/promises.md are complete: every feature and every promise of SECURITY.md has its tests."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROMISES = (ROOT / "docs" / "promises.md").read_text()
SECURITY = (ROOT / "SECURITY.md").read_text()


def read_table(heading: str) -> dict[str, list[str]]:
    """Return each promise below a heading with its tests."""
    section = PROMISES.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+) \| (`tests/.+`) \|$", section, flags=re.MULTILINE)
    return {words.replace("\\|", "|"): re.findall(r"`([^`]+)`", tests) for words, tests in rows}


@cache
def functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(each.name for each in ast.walk(tree) if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))


@pytest.mark.parametrize("heading", ["Features", "SECURITY.md"])
def test_every_promise_has_tests_that_exist(heading: str) -> None:
    table = read_table(heading)
    assert len(table) > 20
    for test in (test for tests in table.values() for test in tests):
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), test
        assert name in functions(path), test


def test_security_has_the_promises_of_the_table_and_no_others() -> None:
    known = read_table("SECURITY.md")
    text = " ".join(SECURITY.split())
    assert not [words for words in known if words not in text]
    section = SECURITY.partition("\n## Promises\n")[2].partition("\n## ")[0]
    items = [" ".join(item.split()) for item in re.findall(r"^- (.+(?:\n  .+)*)", section, flags=re.MULTILINE)]
    assert len(items) > 20
    assert not [item for item in items if not any(words in item for words in known)]
