"""The documents: the page of commands is up to date, every command has help, links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from gpuagent.cli import cli as gpuagent_cli
from gpuagent_collector.cli import cli as collector_cli
from scripts.generate_commands import SCHEMA, list_answers
from tests.support.servers import LIMIT_SECONDS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def test_the_page_of_commands_is_up_to_date() -> None:
    # In a process of its own: click keeps a command's first help option, whatever names it had.
    script = [sys.executable, str(ROOT / "scripts" / "generate_commands.py"), "-"]
    generated = subprocess.run(script, capture_output=True, text=True, check=True, timeout=LIMIT_SECONDS).stdout
    assert (ROOT / "docs" / "commands.md").read_text() == generated, "run: make docs"


def test_the_schema_of_experiments_names_every_answer() -> None:
    schema = SCHEMA.read_text()
    assert list_answers(schema) == schema, "run: make docs"
    assert list_answers(schema.replace("^(", "^(nosuch|", 1)) == schema


@pytest.mark.parametrize("group", [gpuagent_cli, collector_cli], ids=["gpuagent", "collector"])
def test_every_command_has_help_with_an_example(group: click.Group) -> None:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command
        assert command.help, name
        assert "Example" in (command.epilog or "") or isinstance(command, click.Group), name


def test_readme_s_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"make ([a-z][a-z-]+)", README + (ROOT / "CONTRIBUTING.md").read_text())):
        assert re.search(rf"^{target}:.*## ", makefile, flags=re.MULTILINE), target


def test_links_between_documents_lead_somewhere() -> None:
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / link).exists(), f"{document.name}: {link}"
