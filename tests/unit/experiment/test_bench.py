"""The experiments that command lines of `gpuagent bench` stand for."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuagent.cli import conducting
from gpuagent.cli.benching import _with_windows, check_output
from gpuagent.cli.conducting import RunLines
from gpuagent.experiment import plan
from gpuagent.experiment.bench import bench_file, expand_braces, name_bench, split_line
from gpuagent.experiment.conduct import Journal
from gpuagent.experiment.file import Experiment, parse_experiment
from gpuagent_common.errors import MisuseError
from gpuagent_proto.v1.run_pb2 import RunUpdate


def content(*words: str, workload: bool = False, program: Sequence[str] = (), **given: Any) -> dict[str, Any]:
    return bench_file(words, program, is_workload=workload, **given)


def experiment(*words: str, **given: Any) -> Experiment:
    made = content(*words, **given)
    return parse_experiment(json.dumps({"name": name_bench(made), **made}).encode(), "bench")


def commands(*words: str, **given: Any) -> list[list[str]]:
    return [list(cell.asked.command) for cell in experiment(*words, **given).cells]


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("a {1,2} b", ["a 1 b", "a 2 b"]),
        ("{a,b}{1..3}", ["a1", "a2", "a3", "b1", "b2", "b3"]),
        ("{3..1}", ["3", "2", "1"]),
        ("--with={,x}", ["--with=", "--with=x"]),
        ("f{01..03}", ["f01", "f02", "f03"]),
        ("{-01..1} {1..10..4}", ["-01 1", "-01 5", "-01 9", "000 1", "000 5", "000 9", "001 1", "001 5", "001 9"]),
        ("{a,{b,c}}", ["a", "b", "c"]),
        ("x{a,b{1..2}c}{d,e}", ["xad", "xae", "xb1cd", "xb1ce", "xb2cd", "xb2ce"]),
        # No alternatives: a program's own.
        ("find {} ${a,b} {name} {a b,c}", ["find {} ${a,b} {name} {a b,c}"]),
        ("python -c 'x={1,2}' \"{a,b}\" \\{a,b}", ["python -c 'x={1,2}' \"{a,b}\" \\{a,b}"]),
        ('{"a":1,"b":2}', ['{"a":1,"b":2}']),
    ],
)
def test_braces_are_those_of_a_shell_and_quotations_keep_theirs(text: str, expanded: Sequence[str]) -> None:
    assert expand_braces(text) == expanded


def test_a_character_that_stands_for_a_brace_is_refused() -> None:
    with pytest.raises(MisuseError, match=r"U\+100005"):
        expand_braces("a\U00100005 {1,2}")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("python a.py --x 'a b'", ["python", "a.py", "--x", "a b"]),
        ("sort 'a|b' \"c;d\" e\\*", ["sort", "a|b", "c;d", "e*"]),
        *((line, ["sh", "-c", line]) for line in ("grep TODO *", "a | b", "A=1 b", 'echo "$HOME"', "a && b", "ls ~")),
    ],
)
def test_only_what_a_shell_alone_understands_goes_to_one(line: str, words: Sequence[str]) -> None:
    assert split_line(line) == words


def test_commands_have_one_name_by_which_they_are_compared() -> None:
    made = experiment("python a.py", "python b.py")
    cells = made.cells
    assert {(cell.name, cell.asked.command[-1]) for cell in cells} == {("a.py-b.py", "a.py"), ("a.py-b.py", "b.py")}
    assert (made.repeats, made.warm_up, made.answers) == (7, 1, ("compare --by command",))
    assert made.name.startswith("a.py-b.py-")
    assert set(plan.describe_apart(cells).values()) == {"python a.py", "python b.py"}


def test_values_are_put_in_their_places_or_added_as_arguments() -> None:
    train = ("python", "train.py")
    both = [["python", "train.py", "--lr", "1"], ["python", "train.py", "--lr", "2"]]
    assert commands(program=train, vary=["lr=1,2"]) == both
    assert commands(program=(*train, "--lr", "{1,2}")) == both
    assert commands("python train.py", vary=["lr=1,2"]) == both
    assert commands("make -j {jobs}", vary=["jobs=1..2"]) == [["make", "-j", "1"], ["make", "-j", "2"]]
    assert commands("make", vary=["j=1,2"]) == [["make", "-j", "1"], ["make", "-j", "2"]]
    assert len(commands(program=(*train, "--a", "{1,2}", "--b", "{1..3}"), vary=["c=1,2"])) == 12
    # Unquoted braces are words already.
    assert commands(program=(*train, "--lr", "1", "2")) == [["python", "train.py", "--lr", "1", "2"]]
    assert commands(program=("x", "\\{1,2}")) == [["x", "{1,2}"]]


def test_a_search_for_the_load_is_one_run_and_several_are_compared_in_pairs() -> None:
    words = ("serve-load", "--url", "http://a", "--find", "rate", "--slo-ttft", "200")
    alone = experiment(*words, workload=True)
    assert (alone.repeats, alone.warm_up, alone.answers) == (1, 0, ("serving --by workload",))
    named = experiment(*words, "--server", "fast", workload=True)
    assert named.answers == ("serving --by parameter:server",)
    several = experiment(*words[:1], *words[3:], workload=True, vary=["url=http://a,http://b"])
    compared = "compare --by parameter:url --metric highest_rate"
    assert (several.repeats, several.warm_up) == (7, 0)
    assert several.answers == ("serving --by parameter:url", compared)


def test_a_workload_is_compared_by_its_parameters_and_circumstances() -> None:
    words = ("mnist", "--precision", "{fp32,bf16}", "--steps", "5")
    made = experiment(*words, workload=True, environments=["{bare,apptainer:image.sif}"], beside=["none", "cpu-burn"])
    cells = made.cells
    assert len(cells) == 8
    assert {cell.name for cell in cells} == {"mnist"}
    assert {cell.environment for cell in cells} == {"bare", "apptainer:image.sif"}
    assert made.answers == ("compare --by parameter:precision,environment,interference",)
    varied = experiment("mnist", workload=True, vary=["precision=fp32,bf16", "environment=bare,docker:x"])
    assert {(dict(cell.asked.parameters)["precision"], cell.environment) for cell in varied.cells} == {
        (precision, environment) for precision in ("fp32", "bf16") for environment in ("bare", "docker:x")
    }


def test_a_planned_look_needs_more_rounds_and_sides() -> None:
    made = experiment("a", "b", top={"until": "2%"})
    assert plan.looks(plan.narrowed(made, ())) == [8, 12, 18, 27, 40]
    with pytest.raises(MisuseError, match="--until"):
        content("a", top={"until": "2%"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "bench --help"),
        ({"words": ["a", "a"]}, "given twice"),
        ({"words": ["a", "--lr", "1"]}, "no option --lr"),
        ({"words": ["--vry", "x=1,2"], "program": ["a"], "options": ["--vary"]}, "--vry; did you mean --vary?"),
        ({"words": ["a"], "vary": ["n=1..99999"]}, "--vary n=1..99999 has 99,999 values; give at most 256"),
        ({"words": ["--repeat", "3"], "program": ["a"]}, "use --rounds N"),
        ({"words": ["--runs=5", "a"]}, "--rounds"),
        ({"words": ["--parameter-scan", "n", "1", "4", "a {n}"]}, "--vary"),
        *(({"words": [word, "x", "a"]}, "--prepare") for word in ("-p", "-s", "-c", "-C", "--cleanup")),
        ({"words": ["--export-orgmode", "x", "a"]}, "-o FILE.md"),
        ({"words": ["sleep {t}"], "vary": ["t=0.3..0.5..0.1"]}, "t=0.1,0.2"),
        ({"words": ["a"], "program": ["b"]}, "before `--`"),
        ({"words": [""]}, "empty"),
        ({"words": ["a 'b"]}, "cannot read"),
        ({"words": ["echo {1..10000}"]}, "10,000 values"),
        ({"words": ["echo {1..99} {1..99}"]}, "9,801 commands"),
        ({"program": [*["{1..200}"] * 9]}, "commands, more than"),
        ({"words": ["a"], "vary": ["lr"]}, "--vary"),
        ({"words": ["a"], "vary": ["lr=1,,2"]}, "--vary lr"),
        ({"words": ["a"], "vary": ["lr=1,2,1"]}, "give each once: --vary lr=1,2$"),
        *(({"words": [word, "a"]}, "no shell is used unless") for word in ("-N", "--shell=none")),
        *(({"words": [line], "vary": ["lr=1,2"]}, "{lr}") for line in ("a | b", "a; b", "a < b", "a && b", "a &")),
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(given: dict[str, Any], said: str) -> None:
    words = given.pop("words", ())
    with pytest.raises(MisuseError, match=said) as raised:
        content(*words, **given)
    assert len(str(raised.value)) <= 160


@pytest.mark.parametrize("words", [["mnist", "--a", "1", "2"], ["mnist", "x"], ["mnist", "--a=1", "2"]])
def test_words_that_a_shell_made_of_braces_are_refused_with_a_hint(words: Sequence[str]) -> None:
    with pytest.raises(MisuseError, match="quote braces"):
        content(*words, workload=True)


def test_cells_are_told_apart_on_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = ("python", "train.py", "--learning-rate", "{0.1,0.2}", "--optimizer", "{sgd,adamw}")
    journal = Journal(tmp_path / "journal", experiment(program=words, top={"repeats": 1, "warm_up": 0}))
    lines = RunLines(journal)
    for trial in journal.every:
        lines.wait(trial, "waits")
    printed = capsys.readouterr().err.splitlines()
    assert len({line.partition("] ")[2] for line in printed}) == len(printed) == 4


def test_a_run_that_waited_behind_others_has_a_line_of_progress_once_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(conducting, "has_terminal", lambda: True)
    monkeypatch.setattr(conducting, "ProgressLine", lambda run_id, *_, **__: drawn.append(run_id))
    monkeypatch.setattr(conducting, "OutputCopy", lambda *_, **__: SimpleNamespace(finish=lambda: None))
    journal = Journal(tmp_path / "journal", experiment("true", top={"repeats": 1, "warm_up": 0}))
    lines, (trial,) = RunLines(journal), journal.every
    lines.begin(trial)
    running = RunUpdate(run_id="a-run", status="running", run_directory=str(tmp_path))
    lines.follow(running)
    lines.wait(trial, "waited 6 s behind other runs")
    lines.begin(trial)
    assert drawn == ["a-run", "a-run"]
    lines.end(trial, RunUpdate(run_id="a-run", status="succeeded", run_directory=str(tmp_path)), 1.0, 0.0)
    lines.begin(trial)
    assert drawn == ["a-run", "a-run"]


@pytest.mark.parametrize(
    ("option", "unit", "said"), [("batch-size", "steps/s", 1), ("batch-size", "items/s", 0), ("lr", "steps/s", 0)]
)
def test_steps_of_several_sizes_are_said_to_be_other_work_after_the_first_run(
    option: str, unit: str, said: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = experiment(program=["python3", "train.py"], vary=[f"{option}=1,2"], top={"repeats": 1, "warm_up": 0})
    result = {"t": 1, "event": "result", "name": "throughput", "value": 5.0, "unit": unit}
    (tmp_path / "events.0.0.jsonl").write_text(f"{json.dumps(result)}\n")
    journal = Journal(tmp_path / "journal", made)
    lines = RunLines(journal)
    for trial in journal.every:
        lines.end(trial, RunUpdate(run_id="a-run", status="succeeded", run_directory=str(tmp_path)), 1.0, 0.0)
    assert capsys.readouterr().err.count(f" with --items-per-step {option}, ") == said


@pytest.mark.parametrize(
    ("words", "labels"),
    [
        # The line has room for them.
        (["xxd file > /dev/null", "hexdump file > /dev/null"], {"xxd file > /dev/null", "hexdump file > /dev/null"}),
        (["python train.py --steps 5 --batch-size 64 --workers {0,1} | cat > f"], {"--workers 0", "--workers 1"}),
        (["sort f | uniq", f"sort -n {'f' * 60} | uniq"], {"sort f | uniq", f"sort -n {'f' * 35}…"}),
    ],
)
def test_lines_of_a_shell_have_as_much_room_as_there_is(
    words: Sequence[str],
    labels: set[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    journal = Journal(tmp_path / "journal", experiment(*words, top={"repeats": 1, "warm_up": 0}))
    lines = RunLines(journal)
    for trial in journal.every:
        lines.wait(trial, "waits")
    printed = capsys.readouterr().err.splitlines()
    assert {line.partition("] ")[2].removesuffix("waits").rstrip() for line in printed} == labels


def test_the_items_of_a_step_are_an_option_of_each_command() -> None:
    program = ["python3", "train.py", "--lr=1"]

    def items(asked: float | str, **given: Any) -> list[float]:
        made = experiment(program=program, settings={"items_per_step": asked}, **given)
        return [cell.asked.items_per_step for cell in made.cells]

    assert items("batch-size", vary=["batch_size=32,128"]) == [32, 128]
    program += ["--batch-size", "64"]
    assert items("batch-size", vary=["batch_size=32,128"]) == [32, 128]
    del program[-2:]
    assert items(8, vary=["lr=1,2"]) == [8, 8]
    with pytest.raises(MisuseError, match="counts the same for each --batch-size; let"):
        items(8, vary=["batch-size=32,128"])
    for option, vary in (("batch-size", ["lr=1,2"]), ("optimizer", ["optimizer=sgd,adam"])):
        with pytest.raises(MisuseError, match=f"has no --{option} with a number"):
            items(option, vary=vary)
    with pytest.raises(MisuseError, match="a built-in workload has no --batch-size"):
        content("mnist", workload=True, settings={"items_per_step": "batch-size"})


def test_a_file_that_cannot_be_written_is_refused_and_one_that_can_stays_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match=r"cannot write /proc/answer\.md: "):
        check_output(Path("/proc/answer.md"), is_workload=False)
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text("a")
    for file in (old, new):
        check_output(file, is_workload=False)
    assert old.read_text() == "a"
    assert not new.exists()


@pytest.mark.parametrize(
    "given",
    [["--find-windows", "10"], ["--find_windows=10"], ["--param", "find-windows=10"], ["--vary", "find-windows=9"]],
)
def test_a_search_is_repeated_with_more_windows(given: Sequence[str]) -> None:
    words = ["bench", "serve-load", *given, "--find", "rate"]
    assert _with_windows(words, "40") == ["bench", "serve-load", "--find", "rate", "--find-windows", "40"]
