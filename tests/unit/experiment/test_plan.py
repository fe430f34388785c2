import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent.experiment import plan
from gpuagent.experiment.bench import bench_file
from gpuagent.experiment.file import parse_experiment
from gpuagent_common.cli import parse_labels
from gpuagent_common.errors import MisuseError
from tests.unit.experiment.experiments import experiment


@given(seed=st.integers(0, 10**6))
def test_every_repeat_has_each_cell_once_in_the_order_of_the_seed(seed: int) -> None:
    wanted = experiment(more=f"seed: {seed}\n")
    blocks = plan.trials(wanted)
    assert blocks == plan.trials(wanted)
    every = sorted(cell.key for cell in wanted.cells)
    assert [sorted(trial.cell.key for trial in block) for block in blocks] == [every] * 3


def test_each_repeat_has_an_order_of_its_own_and_cells_measured_once_are_in_the_first() -> None:
    blocks = plan.trials(experiment(more="  - {workload: ceilings, with: [none], once: true}\nseed: 7\n"))
    measured_once = [[trial.cell.asked.workload == "ceilings" for trial in block].count(True) for block in blocks]
    assert measured_once == [1, 0, 0]
    assert len({tuple(trial.cell.key for trial in block) for block in blocks[1:]}) > 1


def test_warm_ups_have_another_name() -> None:
    wanted = experiment(more="warm_up: 1\n")
    first, second = (plan.spec(block[0], wanted, "") for block in plan.trials(wanted)[:2])
    assert (first.experiment, first.first_repeat) == ("two-by-two-warm-up", 1)
    assert (second.experiment, second.first_repeat) == ("two-by-two", 1)


def test_the_fingerprint_changes_with_the_runs_and_not_with_the_question() -> None:
    assert plan.fingerprint(experiment()) == plan.fingerprint(experiment(more="question: Why?\n"))
    others = ("", "seed: 2\n", "metric: step_seconds\n", "warm_up: 1\n")
    assert len({plan.fingerprint(experiment(more=more)) for more in others}) == 4


def test_only_keeps_the_named_cells() -> None:
    wanted = experiment(more="environments: [bare, 'docker:a']\n")
    narrowed = plan.narrowed(wanted, ["environment=docker"], name="other", repeats=1)
    assert {cell.environment for cell in narrowed.cells} == {"docker:a"}
    assert (narrowed.name, narrowed.repeats) == ("other", 1)
    assert plan.narrowed(wanted, []) == wanted
    for only in ("environment=slurm", "workload=gpt", "ranks=1", "environment"):
        with pytest.raises(MisuseError, match="--only"):
            plan.narrowed(wanted, [only])
    for name in ("../other", "a b", "-x"):
        with pytest.raises(MisuseError, match="experiment's name"):
            plan.narrowed(wanted, [], name=name)


def test_too_many_runs_are_refused_before_they_are_listed() -> None:
    values = f"[{', '.join(map(str, range(1000)))}]"
    parameters = ", ".join(f"{name}: {values}" for name in "abcdef")
    with pytest.raises(MisuseError, match="has 100,000 at most"):
        experiment(f"name: x\nrepeats: 1\nworkloads: [{{workload: mnist, parameters: {{{parameters}}}}}]")
    with pytest.raises(MisuseError, match="an experiment has"):
        plan.narrowed(experiment(), [], repeats=100_000)


def test_limits_are_crossed_with_the_rest_and_sent_to_the_agent() -> None:
    wanted = experiment(more="limits: [none, {cpus: 2, memory: 8G, change: [cpus=4@60s]}]\n")
    cells = wanted.cells
    assert len(cells) == 8
    limited = next(cell for cell in cells if cell.asked.cpus)
    assert limited.describe().endswith(" · cpus=2 memory=8G cpus=4@60s")
    trial = plan.Trial(cell=limited, repeat=1)
    spec = plan.spec(trial, wanted, "")
    assert (spec.cpus, spec.memory_bytes, spec.cpu_changes[0].cpus) == (2, 8 * 2**30, 4)
    assert plan.fingerprint(wanted) != plan.fingerprint(experiment())


def test_a_command_has_its_name_in_the_request_and_is_chosen_by_it() -> None:
    wanted = experiment(
        "name: x\nrepeats: 1\nworkloads:\n"
        "  - {command: [python3, train.py, --dtype=bfloat16], name: nanogpt}\n"
        "  - {command: [python3, -m, other.mod]}\n"
    )
    named, other = (plan.Trial(cell=cell, repeat=1) for cell in wanted.cells)
    assert [plan.spec(trial, wanted, "").name for trial in (named, other)] == ["nanogpt", ""]
    for name, cell in (("nanogpt", named.cell), ("other.mod", other.cell)):
        assert plan.narrowed(wanted, [f"workload={name}"]).cells == (cell,)


def test_a_named_command_is_described_by_its_name_and_the_words_that_others_of_the_name_lack() -> None:
    wanted = experiment(
        "name: x\nrepeats: 1\nworkloads:\n"
        "  - {command: [python3, train.py, --seed, '1', --dtype=bfloat16], name: wide}\n"
        "  - {command: [python3, train.py, --seed, '1'], name: wide}\n"
        "  - {command: [/opt/tools/train, --seed, '1'], name: narrow}\n"
        "  - {command: [python3, -m, other.mod]}\n"
    )
    cells = wanted.cells
    assert [cell.describe() for cell in cells] == [
        "wide --dtype=bfloat16 · bare",
        "wide · bare",
        "narrow · bare",
        "python3 -m other.mod · bare",
    ]
    # A part of the file has the same cells, so that the rest continues it.
    part = plan.narrowed(wanted, ["workload=wide"])
    assert [cell.key for cell in part.cells] == [cell.key for cell in cells[:2]]


@pytest.mark.parametrize("label", ["imported", "until"])
def test_a_label_that_gpuagent_makes_is_refused_from_users(label: str) -> None:
    with pytest.raises(MisuseError, match=f"the label '{label}' is made by"):
        parse_labels([f"{label}=x"])
    for labels in (f"labels: {{{label}: x}}\n", f"  - {{workload: gpt, labels: {{{label}: x}}}}\n"):
        with pytest.raises(MisuseError, match=f"labels of the file: the label '{label}' is made by"):
            plan.narrowed(experiment(more=labels), [])


def test_options_of_a_site_belong_to_its_cells() -> None:
    text = """
name: places
environments: [slurm, "kubernetes:me/train:1"]
options: {kubernetes: --gpus 1 --platform openshift}
workloads: [{command: [train]}]
"""
    here, there = experiment(text).cells
    assert (list(here.asked.options), list(there.asked.options)) == ([], ["--gpus", "1", "--platform", "openshift"])
    trial = plan.Trial(cell=there, repeat=1)
    assert list(plan.spec(trial, experiment(text), "").options) == list(there.asked.options)
    with pytest.raises(MisuseError, match="closing quotation"):
        experiment(text.replace("--gpus 1 --platform openshift", '"\'"'))


MIXED = """
name: mixed
repeats: 1
workloads:
  - {workload: mnist, parameters: {batch-size: [32, 64], steps: 100}}
  - {workload: gcn}
  - {command: [train]}
"""


def has(workload: str, name: str) -> bool:
    return name in {"mnist": ("batch-size", "steps", "data"), "gcn": ("steps", "data")}[workload]


def described(texts: list[str]) -> list[str]:
    return [cell.describe() for cell in plan.with_parameters(experiment(MIXED), texts, has).cells]


def test_parameters_replace_those_of_the_workloads_that_have_them() -> None:
    assert described(["steps=5"]) == [
        *(f"mnist batch-size={size} steps=5 · bare" for size in (32, 64)),
        "gcn steps=5 · bare",
        "train · bare",
    ]
    assert described(["batch_size=8", "batch-size=16", "mnist:steps=7", "steps=5"]) == [
        *(f"mnist batch-size={size} steps=7 · bare" for size in (8, 16)),
        "gcn steps=5 · bare",
        "train · bare",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("steps", "--param takes NAME=VALUE or WORKLOAD:NAME=VALUE, not 'steps'"),
        (":steps=1", "--param takes NAME=VALUE"),
        ("stps=1", "--param stps: no workload of this experiment has such parameter"),
        ("gcn:batch-size=1", "--param batch-size: gcn of this experiment has no such parameter"),
        ("gpt:steps=1", "--param steps: gpt of this experiment has no such parameter"),
    ],
)
def test_parameters_that_replace_nothing_are_refused(text: str, words: str) -> None:
    with pytest.raises(MisuseError, match=words):
        described([text])


def test_cells_that_are_left_out_do_not_change_the_order_of_the_others() -> None:
    wanted = experiment()
    every = plan.trials(wanted)
    missing = {trial.cell.key for trial in every[0][:2]}
    left = [[trial for trial in block if trial.cell.key not in missing] for block in every]
    assert plan.trials(wanted, missing) == left


_SERVED = """
name: served
repeats: 2
workloads:
  - workload: serve-load
    serve: {}
    parameters: {{rate: [1, 2]}}
"""


def test_each_server_of_a_list_is_a_cell_of_its_own_at_each_load() -> None:
    servers = "[{name: a, command: 'serve --port {port}'}, {name: b, command: [serve, --slots, 1], ready: /v1/models}]"
    cells = [dict(cell.asked.parameters) for cell in experiment(_SERVED.format(servers)).cells]
    a, b = {"server": "a", "serve": "serve --port {port}"}, {"server": "b", "serve": "serve --slots 1"}
    more = {"ready": "/v1/models"}
    assert cells == [{"rate": "1", **a}, {"rate": "1", **b, **more}, {"rate": "2", **a}, {"rate": "2", **b, **more}]
    (one, *_) = experiment(_SERVED.format("{command: x, timeout_seconds: 5}")).cells
    assert dict(one.asked.parameters) == {"rate": "1", "serve": "x", "ready-timeout": "5"}
    assert one.describe() == "serve-load rate=1 ready-timeout=5 · bare"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (_SERVED.format("[{command: x}, {command: y}]"), "6:5: give each server a name of its own"),
        (_SERVED.format("[{name: a, command: x}, {name: a, command: y}]"), "give each server a name of its own"),
        (_SERVED.format("{ready: /health}"), "workloads.0.serve cannot be"),
        (_SERVED.replace("workload: serve-load", "command: [x]").format("{command: x}"), "parameters|serve is for"),
    ],
)
def test_servers_that_cannot_be_told_apart_or_started_are_refused(text: str, reason: str) -> None:
    with pytest.raises(MisuseError, match=reason):
        experiment(text)


def test_arguments_of_a_command_are_crossed_and_each_cell_is_shown_by_what_differs() -> None:
    text = "name: x\nworkloads:\n  - {command: [python, train.py], arguments: {--lr: [0.10, 2], --fast: [true, false]}}"
    cells = experiment(text).cells
    assert [cell.asked.command[2:] for cell in cells] == [
        ["--lr", "0.10", "--fast"],
        ["--lr", "0.10"],
        ["--lr", "2", "--fast"],
        ["--lr", "2"],
    ]
    assert set(plan.describe_apart(cells).values()) == {
        "python train.py --lr 0.10 --fast",
        "python train.py --lr 0.10",
        "python train.py --lr 2 --fast",
        "python train.py --lr 2",
    }
    assert set(plan.describe_apart(experiment().cells).values()) == {
        "--batch-size 32",
        "--batch-size 32 · with cpu-burn",
        "--batch-size 64",
        "--batch-size 64 · with cpu-burn",
    }


def test_lines_of_a_shell_are_shown_by_what_differs() -> None:
    line = "python train.py --steps 5 --batch-size 64 --workers {} | cat"
    made = parse_experiment(json.dumps({"name": "x", **bench_file([line.format("{0,1}")], [])}).encode(), "x")
    assert set(plan.describe_apart(made.cells).values()) == {"--workers 0", "--workers 1"}
    assert set(plan.describe_apart(made.cells, 60).values()) == {line.format(workers) for workers in (0, 1)}
    with_paths = {"name": "x", **bench_file(["hexdump file > /dev/null", "xxd file > /dev/null"], [])}
    made = parse_experiment(json.dumps(with_paths).encode(), "x")
    assert set(plan.describe_apart(made.cells, 10).values()) == {"hexdump", "xxd"}


def test_lines_of_a_shell_beside_programs_have_their_names() -> None:
    train = "{name: trainer, command: [python, train.py, --workers, %d]}"
    shell = "{name: shell, command: [sh, -c, 'sort numbers.txt | tail']}"
    text = "\n".join(f"  - {entry}" for entry in (train % 1, train % 2, shell))
    made = experiment(f"name: x\nworkloads:\n{text}")
    labels = {"trainer · --workers 1", "trainer · --workers 2", "shell"}
    assert set(plan.describe_apart(made.cells, 12).values()) == labels


def test_a_command_without_a_difference_is_shown_by_its_words() -> None:
    line = "python train.py --steps 5 --batch-size 64"
    made = parse_experiment(json.dumps({"name": "x", **bench_file([line, f"env X=1 {line}"], [])}).encode(), "x")
    assert set(plan.describe_apart(made.cells, 20).values()) == {line, "env X=1"}


def test_standard_input_is_a_part_of_a_cell() -> None:
    (cell,) = experiment("name: x\nworkloads: [{command: [sort], input: /data}]").cells
    assert plan.spec(plan.Trial(cell=cell, repeat=1), experiment(), "").input == "/data"
    (plain,) = experiment("name: x\nworkloads: [{command: [sort]}]").cells
    assert cell.key != plain.key


def test_an_answer_by_an_argument_that_no_command_has_is_refused() -> None:
    text = "name: a\nworkloads:\n  - command: [sh, -c, 'train --optimizer=sgd']\nanswer: [compare --by argument:{}]\n"
    plan.narrowed(parse_experiment(text.format("optimizer").encode(), "a.yaml"), ())
    with pytest.raises(MisuseError, match="did you mean argument:--optimizer"):
        plan.narrowed(parse_experiment(text.format("--optimiser").encode(), "a.yaml"), ())
    of_workloads = text.replace("argument:{}", "parameter:optimizer").encode()
    with pytest.raises(MisuseError, match="--by argument:optimizer"):
        plan.narrowed(parse_experiment(of_workloads, "a.yaml"), ())
