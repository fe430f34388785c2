import json
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from gpuagent.experiment.file import SCHEMA, find_file, parse_experiment, read_experiment, studies
from gpuagent_collector.cli import cli as collector
from gpuagent_common.errors import MisuseError
from gpuagent_proto.v1.run_pb2 import RunSpec

WHOLE = b"""
name: order
question: Does it?
repeats: 3
environments: [bare, "docker:image"]
with: [none, cpu-burn, [cpu-burn, gpu-burn]]
workloads:
  - workload: mnist
    parameters: {batch-size: [32, 64], compile: true, lr: 0.5}
  - command: [python3, train.py, --lr, 0.10, 010, 1:30]
    environments: [bare]
    timeout_seconds: 60
cool_down: {seconds: 2, celsius_above_start: 5}
settle: 45C
budget: {hours: 1.5}
answer: [compare --by environment]
labels: {rack: 7}
"""
_COMMAND = ("python3", "train.py", "--lr", "0.10", "010", "1:30")
MNIST = "workloads: [{workload: m}]"
# A few lines that stand for 10**9 values.
LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]\n" for a, b in pairwise("abcdefghi")
)


def test_a_file_defines_the_runs_and_omitted_fields_have_defaults() -> None:
    experiment = parse_experiment(WHOLE, "order.yaml")
    mnist = [cell for cell in experiment.cells if cell.asked.workload]
    command = experiment.cells[-1]
    assert {tuple(sorted(cell.asked.parameters.items())) for cell in mnist} == {
        (("batch-size", size), ("compile", "true"), ("lr", "0.5")) for size in ("32", "64")
    }
    assert {(cell.environment, *cell.asked.interference) for cell in mnist} == {
        (place, *beside)
        for place in ("bare", "docker:image")
        for beside in ((), ("cpu-burn",), ("cpu-burn", "gpu-burn"))
    }
    assert (len(mnist), len(experiment.cells), command.environment, command.asked.timeout_seconds) == (
        12,
        15,
        "bare",
        60,
    )
    assert tuple(command.asked.command) == _COMMAND
    assert experiment.labels == {"rack": "7"}
    assert (experiment.metric, experiment.seed, experiment.failures, experiment.warm_up) == ("throughput", 1, 3, 0)
    assert (experiment.cool_down.celsius_above_start, experiment.cool_down.limit_seconds) == (5, 300)
    assert experiment.cool_down.celsius == 45
    assert (experiment.most_hours, experiment.most_kilowatt_hours) == (1.5, None)


def test_an_entry_says_only_what_a_request_has_or_what_varies() -> None:
    said = json.loads(SCHEMA.read_text())["properties"]["workloads"]["items"]["properties"].keys()
    varies = {"arguments", "serve", "environments", "with", "limits", "once"}
    assert said - varies <= {field.name for field in RunSpec.DESCRIPTOR.fields}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f.yaml is empty"),
        ("name: [", "f.yaml:1:8: "),
        ("- 1", "f.yaml:1:1: the file must be a mapping"),
        ("name: x", "f.yaml:1:1: the file lacks workloads"),
        ("name: a b\n" + MNIST, "f.yaml:1:1: name cannot be 'a b': Groups its runs"),
        ("name: x\nname: y\n" + MNIST, "f.yaml:2:1: name is given twice"),
        ("name: x\nlabels: {7: y}\n" + MNIST, "f.yaml:2:10: this key is no text"),
        ("name: x\n? [y]\n: z\n", "f.yaml:2:3: this key is no text"),
        ("name: !!bool x", "f.yaml is not YAML: "),
        ("name: !!timestamp x", "f.yaml is not YAML: "),
        ('name: x\nquestion: "\\ud800"', "f.yaml:2:11: no program can take this text: '\\ud800'"),
        ('name: x\nworkloads: [{command: ["a\\0b"]}]', "f.yaml:2:24: no program can take this text"),
        (LAUGHS, "f.yaml is no experiment: it stands for more than 100,000 values"),
        ("name: x\nquestion: &a [*a,*a]", "f.yaml is no experiment: it stands for more than 100,000 values"),
        ("name: x\nrepeats: many\n" + MNIST, "f.yaml:2:1: repeats must be a whole number"),
        ("name: x\nworkloads:\n  - workload: m\n    paramters: {a: 1}", "f.yaml:4:5: there is no 'paramters' here"),
        ("name: x\nworkloads:\n  - parameters: {a: 1}", "f.yaml:3:5: give either a workload"),
        ("name: x\nworkloads:\n  - {workload: m, command: [a]}", "f.yaml:3:5: give either a workload"),
        ("name: x\nworkloads:\n  - {workload: m, name: a}", "f.yaml:3:5: give either a workload"),
        ("name: x\nworkloads:\n  - {workload: m, arguments: {a: 1}}", "f.yaml:3:5: give either a workload"),
        ("name: x\nworkloads:\n  - {workload: m, input: a}", "f.yaml:3:5: give either a workload"),
        ("name: x\nworkloads:\n  - command: [m]\n    arguments: {a: [null]}", "f.yaml:4:17: workloads.0.arguments.a"),
        ("name: x\nworkloads:\n  - {command: [m], name: a b}", "f.yaml:3:20: workloads.0.name cannot be"),
        ("name: x\nworkloads:\n  - workload: m\n    parameters: {a: [null]}", "f.yaml:4:18: workloads.0.parameters.a"),
        ("name: x\nanswer: [jobs]\n" + MNIST, "f.yaml:2:10: answer.0 cannot be 'jobs': Begins with compare"),
        (
            "name: x\nanswer: [compre --by node]\n" + MNIST,
            "f.yaml:2:10: answer.0: no command 'compre'; did you mean compare?",
        ),
        ("name: x\nanswer: [{A: serve}]\n" + MNIST, "f.yaml:2:10: answer.0: no command 'serve'; did you mean serving?"),
        ("name: x\nanswer: [compare 'a]\n" + MNIST, "f.yaml:2:10: cannot read answer.0: No closing"),
        ("name: x\nworkloads: [{command: [a, yes]}]", "f.yaml:2:27: workloads.0.command.1 must be"),
        ("name: x\nbudget: {hours: .nan}\n" + MNIST, "f.yaml:2:10: budget.hours must be finite"),
        ("name: x\nlimits: [{memory: 8}]\n" + MNIST, "f.yaml:2:10: limits.0 cannot be"),
        ("name: x\nlimits: [{change: [cpus=2]}]\n" + MNIST, "f.yaml:2:10: limits.0 cannot be"),
        ("name: x\noptions: {kubernets: --gpus 1}\n" + MNIST, "f.yaml:2:11: unknown environment 'kubernets'; did"),
        ("name: x\ncool_down: {seconds: .inf}\n" + MNIST, "f.yaml:2:13: cool_down.seconds must be s"),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_column(text: str, said: str) -> None:
    with pytest.raises(MisuseError) as raised:
        parse_experiment(text.encode(), "f.yaml")
    assert str(raised.value).startswith(said)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("path", studies(), ids=lambda path: path.stem)
def test_each_study_has_the_name_of_its_file_repeats_and_commands_as_answers(path: Path) -> None:
    study = read_experiment(path)
    # A check of a fleet compares many nodes, each once.
    assert (study.name, study.repeats) == (path.stem, 1 if path.stem == "fleet-check" else 7)
    assert study.question
    assert study.answers
    for answer in study.answers:
        name, *words = shlex.split(answer)
        group = collector.make_context("collector", [name, *words])
        command = collector.get_command(group, name)
        assert command is not None
        command.make_context(name, [*words, "--experiment", study.name], parent=group)


def test_a_study_is_found_by_name_and_other_names_and_unreadable_files_are_refused(tmp_path: Path) -> None:
    assert find_file(Path("containers")).name == "containers.yaml"
    with pytest.raises(MisuseError, match="mean containers"):
        find_file(Path("contaners"))
    with pytest.raises(MisuseError, match="studies: accelerators"):
        find_file(Path("mine.yaml"))
    with pytest.raises(MisuseError, match="cannot read"):
        read_experiment(tmp_path)
