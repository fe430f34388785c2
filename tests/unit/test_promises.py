"""SECURITY.md promises nothing without a test: docs/promises.md names the tests of each promise."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECURITY = (ROOT / "SECURITY.md").read_text()
PROMISES = (ROOT / "docs" / "promises.md").read_text()


def one_line(text: str) -> str:
    return " ".join(text.split())


@cache
def functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(each.name for each in ast.walk(tree) if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))


def proofs() -> dict[str, list[str]]:
    """Return each promise with the tests that prove it."""
    rows = re.findall(r"^\| (.+) \| (`tests/.+`) \|$", PROMISES, flags=re.MULTILINE)
    return {words.replace("\\|", "|"): re.findall(r"`([^`]+)`", tests) for words, tests in rows}


def test_every_promise_is_in_security_md_and_its_tests_exist() -> None:
    assert proofs()
    for words, tests in proofs().items():
        assert words in one_line(SECURITY), f"SECURITY.md does not contain: {words}"
        for test in tests:
            path, _, name = test.partition("::")
            assert (ROOT / path).is_file(), test
            assert name in functions(path), test


def test_every_promise_of_security_md_has_a_test() -> None:
    section = SECURITY.partition("\n## Promises\n")[2].partition("\n## ")[0]
    promised = [one_line(item) for item in re.findall(r"^- (.+(?:\n  .+)*)", section, flags=re.MULTILINE)]
    assert len(promised) > 20
    assert not [line for line in promised if not any(words in line for words in proofs())]
