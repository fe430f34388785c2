"""The registry of answers: the same commands in the help, in experiment files, and in notebooks."""

import json
import re
from importlib import import_module
from importlib.resources import files

import pytest

from gpuagent_collector.cli import COMMANDS
from gpuagent_collector.cli.answers import ANSWERS, command_of, parse
from gpuagent_common.errors import MisuseError


def test_the_help_has_every_answer_and_experiment_files_those_about_experiments() -> None:
    listed = {name for name, (module, _) in COMMANDS.items() if module == "gpuagent_collector.cli.answers"}
    assert listed == set(ANSWERS)
    commands = [command_of(name, "") for name in ANSWERS]
    of_experiments = {each.name for each in commands if any("--experiment" in option.opts for option in each.params)}
    schema = json.loads((files("gpuagent.experiment") / "schema.json").read_text())
    (pattern,) = re.findall(r'"\^\(([a-z|]+)\)', json.dumps(schema))
    assert set(pattern.split("|")) == of_experiments


@pytest.mark.parametrize("name", ANSWERS)
def test_the_function_of_an_answer_exists(name: str) -> None:
    module, _, function = ANSWERS[name].function.partition(":")
    assert callable(getattr(import_module(f"gpuagent_collector.{module}"), function))


def test_a_command_becomes_what_its_function_takes() -> None:
    entry, asked = parse(["compare", "--by", "device", "--delta", "3", "--mean", "--", "a", "b"])
    assert entry is ANSWERS["compare"]
    assert (asked["by"], asked["delta"], asked["values"]) == ("device", 0.03, ("a", "b"))
    assert [stat.value for stat in asked["stats"]] == ["mean"]


@pytest.mark.parametrize("words", [["runs"], ["compare", "--no-such-option"], ["compare", "--by", "nonsense"], []])
def test_what_is_no_answer_is_refused(words: list[str]) -> None:
    with pytest.raises(MisuseError):
        parse(words)


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_is_not_printed_where_a_protocol_is_spoken(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MisuseError):
        parse(["compare", option])
    assert capsys.readouterr().out == ""
