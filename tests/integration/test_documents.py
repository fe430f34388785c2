"""README does what it says: its commands are run as written, in order, on a fresh folder."""

import re
import shlex
from pathlib import Path

import click
import pytest

from gpuagent.cli import cli as gpuagent_cli
from gpuagent_collector.cli import cli as collector_cli
from tests.support.servers import Node

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def shell_blocks(text: str) -> list[list[str]]:
    """Return the commands of each ```sh block, comments left out."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return [[line.partition("  #")[0].rstrip() for line in block.splitlines()] for block in blocks]


def short(command: list[str], digits: Path) -> list[str]:
    """Return the command with fewer steps, repeats and digits than a reader would want."""
    if "mnist" not in command or command[0] != "gpuagent":
        return command
    shortened = ["2" if word == "5" else word for word in command]
    return [*shortened, "--steps", "2", "--warmup", "1", "--data", str(digits)]


@pytest.mark.timeout(240)
def test_readme_s_commands_work_as_written(node: Node, digits: Path) -> None:
    commands = [shlex.split(line) for block in shell_blocks(README) for line in block]
    ours = [command for command in commands if command[0] in ("gpuagent", "collector")]
    assert ours.pop(0) == ["collector", "serve"]
    node.serve()
    outputs = {" ".join(command): node.run(*short(command, digits)) for command in ours}
    assert len(outputs) == 8
    assert "mnist" in outputs["collector runs"].stdout
    assert "here" in outputs["collector nodes"].stdout


@pytest.mark.parametrize(("group", "program"), [(gpuagent_cli, "gpuagent"), (collector_cli, "collector")])
def test_every_command_has_help_with_an_example_and_is_in_readme(group: click.Group, program: str) -> None:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command
        assert command.help, name
        assert "Example" in (command.epilog or "") or isinstance(command, click.Group), name
        assert name == "completion" or f"`{program} {name}" in README, name


def test_readme_s_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"make ([a-z][a-z-]+)", README + (ROOT / "CONTRIBUTING.md").read_text())):
        assert re.search(rf"^{target}:.*## ", makefile, flags=re.MULTILINE), target


def test_links_between_documents_lead_somewhere() -> None:
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / link).exists(), f"{document.name}: {link}"
