"""Names of commands: a different one for each that is another, however long and however alike they look."""

import shlex
from collections.abc import Sequence

import pytest

from gpuagent_collector.runs.arguments import (
    differing_arguments,
    find_argument,
    identify_command,
    name_commands,
    repeat_command,
    set_argument,
    write_argument,
)
from gpuagent_collector.runs.facets import find_facet
from gpuagent_collector.runs.words import write_command

TRAIN = "python train.py --learning-rate 0.001 --optimizer adamw --weight-decay 0.01 --batch-size"


def named(*lines: str) -> list[str]:
    commands = [tuple(shlex.split(line)) for line in lines]
    names = name_commands(commands)
    return [names[command] for command in commands]


@pytest.mark.parametrize(
    "lines",
    [
        # They differ behind the 40th character only.
        [f"{TRAIN} {batch} --optimizer {name}" for batch in (32, 128) for name in ("adamw", "stochastic-gradient")],
        [f"prog --prompt {'x' * 60}{end}" for end in "ab"],
        # The order of lone words, and how often each is there.
        ["prog 4 8", "prog 8 4"],
        ["prog 4 4 8", "prog 4 8 4"],
        # The borders between words.
        ["prog --tags 'a b'", "prog --tags a --tags b", "prog --tags a b"],
        ["prog --x=1 --y=2", "prog '--x=1 --y=2'"],
    ],
)
def test_different_commands_have_different_names(lines: Sequence[str]) -> None:
    assert len({identify_command(tuple(shlex.split(line))) for line in lines}) == len(lines)
    assert len(set(named(*lines))) == len(lines)


def test_commands_that_differ_in_order_of_options_and_in_paths_are_one() -> None:
    first, second, other = named(
        "/a/bin/python /a/train.py --x 1 --y 2 --data /a/data --name long",
        "/b/bin/python /b/train.py --y 2 --x=1 --data /b/data --name long",
        "/b/bin/python /b/train.py --y 2 --x=3 --data /b/data --name long",
    )
    assert first == second
    assert (first, other) == ("--x 1", "--x 3")


def test_commands_that_do_not_count_give_the_others_no_longer_name() -> None:
    counted = [("prog", "--epochs", "1", "--lr", rate) for rate in ("0.1", "0.2")]
    others = [("prog", "--lr", "0.1"), ("prog", "--lr", "0.1", "--compile")]
    names = name_commands([*counted, *others], counted)
    assert [names[command] for command in counted] == ["--lr 0.1", "--lr 0.2"]
    assert [names[command] for command in others] == ["prog --lr 0.1", "--lr 0.1 --compile"]


@pytest.mark.parametrize(
    ("command", "changed"),
    [
        ("prog --lr=0.1 --x 1", "prog --lr 0.2 --x 1"),
        ("prog --x 1", "prog --x 1 --lr 0.2"),
        ("prog --rdzv_id 7 --lr 1 --lr 2", "prog --rdzv_id 7 --lr 0.2"),
    ],
)
def test_an_argument_is_set_as_another_command_has_it(command: str, changed: str) -> None:
    source = ("prog", "--lr", "0.2", "--y", "3")
    assert set_argument(tuple(command.split()), "--lr", source) == tuple(changed.split())


def test_an_argument_that_the_other_command_lacks_is_left_out() -> None:
    assert set_argument(("prog", "--compile", "--x", "1"), "--compile", ("prog",)) == ("prog", "--x", "1")


def test_lone_words_in_another_order_are_a_difference_of_commands() -> None:
    ((name, values),) = differing_arguments([[("prog", "4", "8")], [("prog", "8", "4")]])
    assert (name, values) == ("", (("prog 4 8",), ("prog 8 4",)))


def test_arguments_that_differ_in_paths_are_no_difference() -> None:
    first, second = (
        (f"/{place}/python", f"/{place}/train.py", "--data", f"/{place}/data", "--lr", lr)
        for place, lr in (("a", "1"), ("b", "2"))
    )
    assert differing_arguments([[first], [second]]) == [("--lr", (("1",), ("2",)))]


def test_switches_and_absent_arguments_have_words_of_their_own() -> None:
    sides: Sequence[Sequence[tuple[str, ...]]] = [
        [("prog", "--x", "1"), ("prog",)],
        [("prog", "--x")],
        [("prog", "one", "two")],
    ]
    assert differing_arguments(sides) == [
        ("", (("not given",), ("not given",), ("one two",))),
        ("--x", (("1", "not given"), ("given",), ("not given",))),
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [("--lr", "0.1"), ("lr", "0.1"), ("--amp", "given"), ("--seed", "not given"), ("--batch-size", "128")],
)
def test_an_argument_has_its_value_with_hyphens_or_without(name: str, value: str) -> None:
    assert find_argument(shlex.split("python train.py --lr 0.1 --batch-size=64 batch-size=128 --amp"), name) == value


def test_many_commands_with_words_of_their_own_are_read_once() -> None:
    class Counted(str):
        """A word that counts its comparisons."""

        compared = 0

        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return str.__eq__(self, other)

    commands = [("prog", Counted(f"word{number}")) for number in range(300)]
    ((name, (values,)),) = differing_arguments([commands])
    assert (name, len(values)) == ("", 300)
    assert Counted.compared < 100 * len(commands)


def test_a_long_value_is_written_with_the_part_in_which_it_differs() -> None:
    text = write_argument("--prompt", [[f"{'x' * 60}left{'y' * 60}"], [f"{'x' * 60}right{'y' * 60}"]])
    left, right = text.split(" against ")
    assert "left" in left
    assert "right" in right
    assert len(text) < 100


def test_each_value_of_a_combination_has_its_option() -> None:
    facet = find_facet("argument:--optimizer,argument:--batch-size")
    assert facet.name_side("adam · 32") == "--optimizer adam · --batch-size 32"
    assert find_facet("platform,environment").name_side("gke · docker") == "gke · docker"


def test_a_command_has_the_options_that_have_a_value_and_sides_that_are_no_options() -> None:
    options = {"--by": None, "--where": "a = 'b'", "--unpaired": ""}
    written = write_command("compare", options, sides=["--lr 1", "--lr 2"])
    assert shlex.split(written) == [
        "collector",
        "compare",
        "--where",
        "a = 'b'",
        "--unpaired",
        "--",
        "--lr 1",
        "--lr 2",
    ]
    assert write_command("plan", {}, "mnist") == "collector plan mnist"


@pytest.mark.parametrize(
    ("words", "varied"),
    [
        (("python", "train.py", "--batch-size", "{}", "--fast"), True),
        (("torchrun", "--nproc-per-node", "{}", "train.py"), False),
        (("torchrun", "--nproc-per-node={}", "train.py"), False),
    ],
)
def test_a_launcher_s_option_is_not_varied_behind_its_program(words: Sequence[str], varied: bool) -> None:
    commands = [tuple(word.format(value) for word in words) for value in (1, 2)]
    command = repeat_command(commands, "train.py")
    assert command is not None
    assert ("--vary" in command) is varied
    assert all(shlex.join(each) in shlex.split(command) for each in commands) is not varied


def test_long_commands_are_named_by_what_differs_as_it_was_given() -> None:
    train = "python train.py --steps 5 --batch-size 64"
    lines = [f"sh -c {shlex.quote(f'{train} --workers {workers} | cat')}" for workers in (0, 1)]
    assert named(*lines) == ["--workers 0", "--workers 1"]
    assert named(train, f"env OMP_NUM_THREADS=1 {train}") == ["without OMP_NUM_THREADS", "OMP_NUM_THREADS=1"]
    assert named(f"env X=1 {train}", f"env X=2 {train}") == ["X=1", "X=2"]
    assert named("python train.py", "env X=1 python train.py") == ["python train.py", "env X=1 python train.py"]
    assert named("sort", "sort -n") == ["sort", "sort -n"]


def test_commands_that_a_bench_labels_are_called_commands() -> None:
    assert [find_facet(name).plural for name in ("command", "label:command")] == ["commands", "commands"]


def test_commands_with_a_file_as_standard_input_get_it_again() -> None:
    line = repeat_command([("sort",), ("sort", "-n")], "sort", 15, (), "my numbers.txt")
    assert line == "gpuagent bench --rounds 15 sort 'sort -n' < 'my numbers.txt'"
    # `gpuagent run` would give it none.
    assert repeat_command([("sort", "-n")], "sort", 3, (), "a.txt") == "gpuagent bench --rounds 3 'sort -n' < a.txt"


def test_a_shell_s_line_is_its_own_name_and_number_arguments_keep_their_program() -> None:
    assert named("sh -c 'xxd a | tail'", "sh -c 'xxd a | head'") == ["xxd a | tail", "xxd a | head"]
    assert named("sleep 1e-3", "sleep 0.2") == ["sleep 1e-3", "sleep 0.2"]
    assert named("train.py -c a.yaml", "train.py -c b.yaml") == ["-c a.yaml", "-c b.yaml"]
    lines = [("sh", "-c", "a | b"), ("sh", "-c", "a | c")]
    assert repeat_command(lines, "a") == "gpuagent bench 'a | b' 'a | c'"
    assert repeat_command([("sh", "-c", "a x"), ("a", "x")], "a") == "gpuagent bench 'sh -c '\"'\"'a x'\"'\"'' 'a x'"
