"""Options that take numbers or names, of both command lines."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gpuagent.cli import cli as agent
from gpuagent.cli.bench import command as bench
from gpuagent_collector.cli import cli as collector
from gpuagent_collector.runs.repeating import OF_BENCH
from gpuagent_common.cli import NAME, Number, describe_misuse
from gpuagent_common.errors import MisuseError
from gpuagent_workloads.cli import serve as serving
from gpuagent_workloads.registry import WORKLOADS
from gpuagent_workloads.workload import parameters_of


def options(command: click.Command, path: str) -> Iterator[tuple[str, click.Parameter]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from options(found, f"{path} {name}")
    for parameter in command.params:
        yield f"{path} {parameter.name}", parameter


def test_every_number_has_a_range_and_is_none_beyond_it() -> None:
    ranges = 0
    for path, parameter in (found for each in (agent, collector, serving) for found in options(each, str(each.name))):
        kind = parameter.type
        if isinstance(kind, click.types.FloatParamType):
            assert isinstance(kind, Number) and kind.max is not None, path
            beyond = ["nan", "inf", "-inf", "1e400"]
        elif isinstance(kind, click.types.IntParamType):
            assert isinstance(kind, click.IntRange) and kind.max is not None, path
            beyond = ["9" * 23]
        else:
            continue
        ranges += 1
        for written in beyond:
            with pytest.raises(click.BadParameter) as refused:
                click.ParamType.__call__(kind, written, parameter)
            said = describe_misuse(refused.value)
            assert max(parameter.opts, key=len) in said and ("at most" in said or "below" in said), (path, said)
    assert ranges > 30


NAMES = {"--experiment", "--platform", "--node", "--node-id", "--node-name", "--workload", "--job", "--name"}


def test_no_name_is_blank_or_unprintable() -> None:
    found = [(path, option) for each in (agent, collector) for path, option in options(each, str(each.name))]
    named = [(path, option) for path, option in found if NAMES & set(option.opts)]
    for path, option in named:
        assert option.type is NAME, path
        for written in ("", "  ", "a\nb", "x" * 101):
            with pytest.raises(MisuseError, match=max(option.opts, key=len)):
                click.ParamType.__call__(option.type, written, option)
    assert len(named) > 30


def test_parameters_that_are_options_of_bench_too_are_known() -> None:
    options_of_bench = {name.removeprefix("--") for each in bench.params for name in each.opts}
    parameters = {each.name for workload in WORKLOADS for each in parameters_of(workload.config)}
    assert options_of_bench & parameters == set(OF_BENCH)


def test_a_folder_that_cannot_be_read_has_a_remedy_and_a_wrong_value_names_its_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (spool,) = (each for each in bench.params if each.name == "spool")
    context = click.Context(bench)
    monkeypatch.setattr("os.access", lambda *_: False)
    # The check of the folder itself names what to give instead.
    assert spool.type.convert(str(tmp_path), spool, context) == tmp_path
    with pytest.raises(click.BadParameter) as refused:
        spool.type_cast_value(context, __file__)
    assert describe_misuse(refused.value).startswith(f"--spool (GPUAGENT_SPOOL_DIR): Directory {__file__!r} is a file")
