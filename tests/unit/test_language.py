"""The measurable rules of the project's English, over all source: docstrings, help texts and error messages."""

import ast
import builtins
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from gpuagent.cli import cli as gpuagent_cli
from gpuagent_collector.cli import cli as collector_cli

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("agent", "collector", "workloads", "proto", "deploy", "scripts")
SOURCES = [
    path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not path.stem.endswith(("_pb2", "_grpc"))
]

OPENING = re.compile(r"(what|how|whether|who|whom|whose|where|which)\b", re.IGNORECASE)
IDIOM = re.compile(r"\b(tell|tells|telling|told)\b", re.IGNORECASE)
DEFAULT = re.compile(r"\s*\[default: .*\]$", re.DOTALL)

MOST_HELP_CHARACTERS = 60
MOST_OPTION_WORDS = 12
MOST_ERROR_CHARACTERS = 160


@cache
def find_nodes(path: Path) -> list[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Raise]:
    """Return what has a docstring or raises an error; to keep all nodes of all files takes longer than to find them."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Raise)
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]


def find_docstrings() -> Iterator[tuple[str, str]]:
    """Yield the place and text of each docstring."""
    for path in SOURCES:
        for node in find_nodes(path):
            if not isinstance(node, ast.Raise):
                text = ast.get_docstring(node)
                if text:
                    yield f"{path.relative_to(ROOT)}:{node.body[0].lineno}", text


def find_error_texts() -> Iterator[tuple[str, str]]:
    """Yield the place and constant text of each error of ours that is raised."""
    for path in SOURCES:
        for node in find_nodes(path):
            if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args):
                continue
            function = node.exc.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name.endswith("Error") and not hasattr(builtins, name):
                parts = [part for part in ast.walk(node.exc.args[0]) if isinstance(part, ast.JoinedStr | ast.Constant)]
                texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
                yield f"{path.relative_to(ROOT)}:{node.lineno}", "".join(texts)


def find_commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and its subcommands, with the words that call them."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand
            yield from find_commands(subcommand, f"{path} {name}")


COMMANDS = [*find_commands(gpuagent_cli, "gpuagent"), *find_commands(collector_cli, "collector")]


def fail_for(violations: list[str]) -> None:
    if violations:
        pytest.fail("\n".join([f"{len(violations)} violations:", *violations]), pytrace=False)


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    fail_for([f"{place}: {text.splitlines()[0]}" for place, text in find_docstrings() if OPENING.match(text)])


def test_docstrings_use_plain_verbs() -> None:
    fail_for(
        [f"{place}: {found[0]!r} in {text!r}" for place, text in find_docstrings() if (found := IDIOM.search(text))]
    )


def test_the_first_line_of_help_is_short() -> None:
    lines = [(path, (command.help or "").strip().partition("\n")[0]) for path, command in COMMANDS]
    fail_for([f"{path}: {len(line)} characters: {line}" for path, line in lines if len(line) > MOST_HELP_CHARACTERS])


def test_the_help_of_an_option_is_short() -> None:
    helps = [
        (f"{path} {option.opts[0]}", DEFAULT.sub("", option.help or ""))
        for path, command in COMMANDS
        for option in command.params
        if isinstance(option, click.Option)
    ]
    fail_for([f"{place}: {text}" for place, text in helps if len(text.split()) > MOST_OPTION_WORDS])


def test_errors_are_short() -> None:
    texts = [(place, text) for place, text in find_error_texts() if len(text) > MOST_ERROR_CHARACTERS]
    fail_for([f"{place}: {len(text)} characters: {text!r}" for place, text in texts])
