from dataclasses import dataclass

import click
import pytest

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.cli import WorkloadCommand
from gpuagent_workloads.workload import Workload, arguments_of, check, parameter, parameters_of, parse_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    count: int | None = parameter(None, help="h", minimum=1, maximum=9)
    share: float = parameter(0.5, help="h", minimum=0)
    word: str = parameter("w", help="h")
    folder: str = parameter("none", help="h", path=True)
    colour: str = parameter("red", help="h", choices=("red", "dark-blue"))
    fast_path: bool = parameter(False, help="h")

    def __post_init__(self) -> None:
        check(self)


def parse(*arguments: str) -> Config:
    """What a command line makes of the Config."""
    configs: list[Config] = []
    workload = Workload(name="w", summary="s", kind="training", study="", data="", memory="", config=Config, entry="")
    WorkloadCommand(workload, lambda _workload, config: configs.append(config)).main(
        list(arguments), standalone_mode=False
    )
    return configs[0]


def test_types_come_from_the_fields() -> None:
    types = {p.name: p.type for p in parameters_of(Config)}
    assert types == {
        "count": "int",
        "share": "float",
        "word": "str",
        "folder": "path",
        "colour": "choice",
        "fast-path": "bool",
    }


def test_without_arguments_all_parameters_have_their_defaults() -> None:
    assert parse() == Config()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--count", "3", "--fast-path", "true"],
        ["--count=3", "--fast_path"],
        ["--param", "count=3", "--param", "fast_path=yes"],
        ["--param=count=3", "--param=fast-path=1"],
        ["--count", "5", "--param", "count=3", "--fast-path"],
    ],
)
def test_every_way_to_give_a_parameter_means_the_same(arguments: list[str]) -> None:
    assert parse(*arguments) == Config(count=3, fast_path=True)


@pytest.mark.parametrize(
    "config", [Config(), Config(count=3, share=1e-9, word="--count=4 x", folder="/a b", fast_path=True)]
)
def test_a_config_is_the_same_after_a_way_through_the_command_line(config: Config) -> None:
    assert parse(*arguments_of(config)) == config


def test_a_value_may_hold_equals_signs_and_spaces() -> None:
    assert parse("--param", "word=a=b c").word == "a=b c"


@pytest.mark.parametrize(
    "values", [{"count": 0}, {"count": 10}, {"share": float("nan")}, {"share": -0.1}, {"colour": "green"}]
)
def test_values_outside_the_limits_are_misuse_that_names_the_parameter(values: dict[str, int]) -> None:
    with pytest.raises(MisuseError, match=f"--{next(iter(values))} must be"):
        Config(**values)  # type: ignore[arg-type]


def test_a_wrong_type_is_misuse() -> None:
    with pytest.raises(click.BadParameter, match="valid integer"):
        parse("--param", "count=many")


def test_a_misspelt_parameter_gets_the_right_one_suggested() -> None:
    with pytest.raises(click.NoSuchOption) as refused:
        parse("--param", "cont=3")
    assert "--count" in refused.value.format_message()


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("32768K\n", 32 << 20),
        ("2M", 2 << 20),
        ("512", 512),
        (" 16mib ", 16 << 20),
        ("1GB", 1 << 30),
        ("", None),
        ("1.5K", None),
        ("lots", None),
    ],
)
def test_sizes_are_in_powers_of_1024(text: str, size_bytes: int | None) -> None:
    assert parse_size(text) == size_bytes
