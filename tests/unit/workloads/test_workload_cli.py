import importlib
import json
import pkgutil
import signal
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest

from gpuagent_common.errors import MisuseError
from gpuagent_workloads import suite
from gpuagent_workloads.registry import WORKLOADS, find
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.workload import Workload, parameters_of
from tests.unit.workloads.runs import measuring, run_workloads

PARAMETER_TYPES = {"int", "float", "str", "bool", "choice", "path"}


def test_the_json_list_has_what_the_agent_relies_on() -> None:
    done = run_workloads("list", "--json")
    listed = json.loads(done.stdout)
    assert [workload["name"] for workload in listed] == [workload.name for workload in WORKLOADS]
    ranges = {parameter["name"]: parameter for parameter in listed[0]["parameters"]}
    assert (ranges["warmup"]["minimum"], ranges["seed"]["maximum"]) == (0, 2**32 - 1)
    for workload in listed:
        assert workload.keys() == {"name", "summary", "kind", "study", "data", "memory", "parameters"}
        for parameter in workload["parameters"]:
            assert parameter.keys() - {"choices", "minimum", "maximum"} == {"name", "type", "default", "help"}
            assert parameter["type"] in PARAMETER_TYPES
            assert ("choices" in parameter) == (parameter["type"] == "choice")


def test_listing_imports_neither_torch_nor_numpy() -> None:
    program = (
        "import sys; from gpuagent_workloads.cli import main; main(['list', '--json']);"
        "print(*{'torch', 'numpy'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "")


def test_the_text_list_fits_80_columns() -> None:
    listed = run_workloads("list").stdout
    assert max(map(len, listed.splitlines())) <= 80


def test_one_workload_is_listed_with_what_all_training_workloads_share() -> None:
    listed = run_workloads("list", "gpt").stdout
    assert listed.startswith("gpt: ")
    assert "mnist" not in listed
    assert "training workloads" in listed
    assert "Parameters of all training workloads" not in run_workloads("list", "cpu_burn").stdout


@pytest.mark.parametrize("name", [workload.name for workload in WORKLOADS])
def test_help_names_every_parameter(name: str) -> None:
    done = run_workloads("run", name, "--help")
    workload = next(workload for workload in WORKLOADS if workload.name == name)
    assert done.returncode == 0
    assert all(f"--{parameter.name} " in done.stdout for parameter in parameters_of(workload.config))


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["run", "mnits"], "unknown workload mnits: did you mean mnist?"),
        (["run"], "missing workload: choose from mnist"),
        (["prepare", "mnits"], "did you mean mnist?"),
        (["run", "mnist", "--batch-sise", "3"], "--batch-size"),
        (["run", "mnist", "--param", "batch_sise=3"], "--batch-size"),
        (["run", "mnist", "--steps", "0"], "--steps must be at least 1 and at most 1000000000, not 0"),
        (["run", "mnist", "--warmup", "-1"], "--warmup must be at least 0 and at most 1000000000, not -1"),
        (["run", "mnist", "--steps", "some"], "not a valid integer"),
        (["run", "mnist", "--device", "tpu"], "'auto', 'cpu', 'cuda'"),
        (["run", "mnist", "--steps", "1", "--epochs", "1"], "give one of them"),
        (["run", "mnist", "--param", "steps"], "KEY=VALUE"),
        (["run", "cpu-burn", "--load", "nan"], "at least 1"),
        (["run", "cpu-burn", "--cores", "1000000"], "more than the"),
    ],
)
def test_misuse_is_answered_with_one_line_and_a_remedy(arguments: list[str], remedy: str, tmp_path: Path) -> None:
    done = run_workloads(*arguments, XDG_CACHE_HOME=str(tmp_path))
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2
    assert len(errors) == 1
    assert remedy in errors[0]
    assert "Traceback" not in done.stderr


def test_a_failure_is_one_line_with_a_remedy_and_shows_where_only_when_asked(tmp_path: Path) -> None:
    quiet = run_workloads("run", "mnist", "--data", str(tmp_path))
    assert quiet.returncode == 1
    assert f"prepare mnist --data {tmp_path}" in quiet.stderr
    assert "Traceback" not in quiet.stderr
    debugged = run_workloads("run", "mnist", "--data", str(tmp_path), GPUAGENT_DEBUG="1")
    assert debugged.returncode == 1
    assert "Traceback" in debugged.stderr


@pytest.mark.parametrize(("name", "data"), [("cpu-burn", "none"), ("gpt", "train.bin")])
def test_where_nothing_can_be_fetched_that_is_said_with_the_data_it_wants(name: str, data: str) -> None:
    done = run_workloads("prepare", name)
    assert done.returncode == 0
    assert f"{name}: there is nothing to fetch" in done.stdout
    assert data in done.stdout


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_workload_still_prints_its_results(sent: signal.Signals, code: int) -> None:
    with measuring("cpu-burn", "--cores", "1") as process:
        process.send_signal(sent)
        output, errors = process.communicate()
    assert process.returncode == code
    assert "achieved_load" in output
    assert "Traceback" not in errors


def test_every_file_of_the_suite_is_registered() -> None:
    defined: list[Workload[Any]] = []
    for file in pkgutil.iter_modules(suite.__path__):
        module = importlib.import_module(f"{suite.__name__}.{file.name}")
        if hasattr(module, "WORKLOAD"):
            assert module.WORKLOAD.name == file.name.replace("_", "-")
        defined += getattr(module, "WORKLOADS", None) or [module.WORKLOAD]
    assert sorted(workload.name for workload in defined) == sorted(workload.name for workload in WORKLOADS)


def test_workloads_have_entries_that_exist_unique_names_help_and_valid_defaults() -> None:
    assert len({workload.name for workload in WORKLOADS}) == len(WORKLOADS)
    for workload in WORKLOADS:
        config, reporter = list(typing.get_type_hints(pkgutil.resolve_name(workload.entry)).values())[:2]
        assert issubclass(workload.config, config)
        assert reporter is Reporter
        assert workload.preparation is None or callable(pkgutil.resolve_name(workload.preparation))
        assert all(p.help for p in parameters_of(workload.config))
        workload.config()


def test_a_name_may_be_written_with_underscores_and_an_unknown_one_gets_a_remedy() -> None:
    assert find("cpu_burn") is find("cpu-burn")
    with pytest.raises(MisuseError, match="unknown workload xyz:"):
        find("xyz")
