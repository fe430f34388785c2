"""README and SECURITY.md promise nothing without a test: docs/promises.md says which, and says so rightly."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "SECURITY.md")
PROMISES = (ROOT / "docs" / "promises.md").read_text()


def read(document: str) -> str:
    """Return a document with every line break and indentation made one space."""
    return " ".join((ROOT / document).read_text().split())


def promises(document: str) -> dict[str, list[str]]:
    """Return each promise of a document with its tests."""
    section = PROMISES.partition(f"\n## {document}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+) \| (`tests/.+`) \|$", section, flags=re.MULTILINE)
    return {words.replace("\\|", "|"): re.findall(r"`([^`]+)`", tests) for words, tests in rows}


@cache
def functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(each.name for each in ast.walk(tree) if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_promise_stands_in_its_document_and_its_tests_exist(document: str) -> None:
    text = read(document)
    assert promises(document)
    for words, tests in promises(document).items():
        assert words in text, f"{document} does not say this any more: {words}"
        for test in tests:
            path, _, name = test.partition("::")
            assert (ROOT / path).is_file(), test
            assert name in functions(path), test


def promised_by_security() -> list[str]:
    """Return the items of the list of promises."""
    section = (ROOT / "SECURITY.md").read_text().partition("\n## Promises\n")[2].partition("\n## ")[0]
    return [" ".join(item.split()) for item in re.findall(r"^- (.+(?:\n  .+)*)", section, flags=re.MULTILINE)]


def promised_by_readme() -> list[str]:
    """Return the items of the list at its beginning, and the lines of the tables that tell what commands do."""
    text = (ROOT / "README.md").read_text()
    items = re.findall(r"^- (.+(?:\n  .+)*)", text.partition("\n## ")[0], flags=re.MULTILINE)
    commands = re.findall(r"^\| (`(?:gpuagent|collector) .+\|.+) \|$", text, flags=re.MULTILINE)
    return [" ".join(item.split()) for item in (*items, *commands)]


@pytest.mark.parametrize(
    ("document", "promised"), [("README.md", promised_by_readme()), ("SECURITY.md", promised_by_security())]
)
def test_every_line_that_promises_something_has_a_promise_in_the_table(document: str, promised: list[str]) -> None:
    assert len(promised) > 20
    known = promises(document)
    assert not [line for line in promised if not any(words in line for words in known)]
