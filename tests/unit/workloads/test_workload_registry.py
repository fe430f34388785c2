import importlib
import pkgutil
import typing
from typing import Any

import pytest

from gpuagent_common.errors import MisuseError
from gpuagent_workloads import suite
from gpuagent_workloads.parameters import parameters_of
from gpuagent_workloads.registry import WORKLOADS, find
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.workload import Workload


def test_every_file_of_the_suite_is_registered() -> None:
    defined: list[Workload[Any]] = []
    for file in pkgutil.iter_modules(suite.__path__):
        module = importlib.import_module(f"{suite.__name__}.{file.name}")
        if hasattr(module, "WORKLOAD"):
            assert module.WORKLOAD.name == file.name.replace("_", "-")
        defined += getattr(module, "WORKLOADS", None) or [module.WORKLOAD]
    assert sorted(workload.name for workload in defined) == sorted(workload.name for workload in WORKLOADS)


def test_entries_and_preparations_exist_and_take_what_they_are_given() -> None:
    for workload in WORKLOADS:
        config, reporter = list(typing.get_type_hints(pkgutil.resolve_name(workload.entry)).values())[:2]
        assert issubclass(workload.config, config)
        assert reporter is Reporter
        assert workload.preparation is None or callable(pkgutil.resolve_name(workload.preparation))


def test_names_are_unique_and_parameters_have_help() -> None:
    assert len({workload.name for workload in WORKLOADS}) == len(WORKLOADS)
    for workload in WORKLOADS:
        assert all(p.help for p in parameters_of(workload.config))


def test_the_defaults_of_every_workload_are_valid() -> None:
    for workload in WORKLOADS:
        workload.config()


def test_a_name_may_be_written_with_underscores() -> None:
    assert find("cpu_burn") is find("cpu-burn")


@pytest.mark.parametrize(("name", "remedy"), [("mnits", "did you mean mnist"), ("xyz", "choose from mnist, ")])
def test_an_unknown_workload_gets_a_remedy(name: str, remedy: str) -> None:
    with pytest.raises(MisuseError, match=f"unknown workload {name}: {remedy}"):
        find(name)
