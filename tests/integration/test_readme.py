"""README's commands run as written."""

import re
import shlex
from pathlib import Path

import pytest

from tests.support.servers import Node

pytestmark = pytest.mark.slow


@pytest.fixture
def forks() -> bool:
    """Start every command as a user does."""
    return False


README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


def shell_blocks(text: str) -> list[list[str]]:
    """Return the commands of each ```sh block, without comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return [[line.partition("  #")[0].rstrip() for line in block.splitlines()] for block in blocks]


def test_readme_s_commands_work_as_written(node: Node) -> None:
    commands = [shlex.split(line) for block in shell_blocks(README) for line in block]
    ours = [command for command in commands if command[0] in ("gpuagent", "collector")]
    assert [command[:2] for command in ours] == [["gpuagent", "bench"]]
    # Nothing else is needed: no collector runs.
    node.without_collector()
    answer = node.run(*ours[0]).stdout
    # Both sides are on one line of the table.
    assert re.search(r"^(sum|max)\(a\) / (sum|max)\(a\)  ", answer, re.MULTILINE)
    runs = node.run("collector", "runs", "--store", "runs.duckdb").stdout
    assert (runs.count("succeeded"), runs.count("warm-up")) == (14, 2)
