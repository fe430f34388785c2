"""What was reviewed once and is written anew by `make goldens`."""

import os
from pathlib import Path

GOLDENS = Path(__file__).parents[1] / "goldens"


def assert_golden(text: str, name: str) -> None:
    """Check that a text is as in a file of goldens, but for spaces at the ends of lines."""
    golden = GOLDENS / name
    printed = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    if os.environ.get("GOLDENS") == "write":
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(printed)
    assert printed == golden.read_text()
