"""`make audit` never says that all is well where nothing was looked up."""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "audit.py"
spec = importlib.util.spec_from_file_location("audit_script", SCRIPT)
assert spec
assert spec.loader
audit = importlib.util.module_from_spec(spec)
spec.loader.exec_module(audit)

SOUND = {"name": "click", "version": "8.5.1", "vulns": []}
WEAK = {"name": "x", "version": "1.0", "vulns": [{"id": "CVE-2026-1", "fix_versions": ["1.1"]}]}
UNKNOWN = {"name": "y", "skip_reason": "Dependency not found on PyPI and could not be audited: y (1.0)"}


def test_all_looked_up_and_nothing_found_is_well() -> None:
    assert audit.judge([SOUND]) == (0, ["audit: 1 packages, no known weakness"])


def test_what_could_not_be_looked_up_is_a_failure_in_one_line() -> None:
    code, lines = audit.judge([SOUND, UNKNOWN])
    assert (code, len(lines)) == (1, 1)
    assert "1 of 2 packages could not be looked up (y)" in lines[0]
    assert audit.judge([])[0] == 1


def test_a_weakness_is_told_with_the_version_that_mends_it() -> None:
    assert audit.judge([WEAK]) == (1, ["audit: x 1.0: CVE-2026-1, mended in 1.1"])
