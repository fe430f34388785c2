"""SECURITY.md promises nothing without a test."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = (ROOT / "SECURITY.md").read_text()
PROMISES = DOCUMENT.partition("## Promises")[2].partition("\n## ")[0]


def test_the_tests_that_security_md_names_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PROMISES)
    assert len(named) > 20
    for path, name in named:
        functions = {node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if hasattr(node, "name")}
        assert name in functions, f"{path}::{name}"


def test_every_promise_names_a_test() -> None:
    promises = re.split(r"^- ", PROMISES, flags=re.MULTILINE)[1:]
    assert len(promises) > 15
    for promise in promises:
        assert "::test_" in promise, promise
