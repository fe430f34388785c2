import pkgutil

import pytest

from gpuagent_workloads import suite
from gpuagent_workloads.errors import MisuseError
from gpuagent_workloads.parameters import parameters_of
from gpuagent_workloads.registry import WORKLOADS, find


def test_every_file_of_the_suite_is_registered_under_its_name() -> None:
    files = {f"gpuagent_workloads.suite.{module.name}": module.name for module in pkgutil.iter_modules(suite.__path__)}
    registered = {workload.run.__module__: workload.name.replace("-", "_") for workload in WORKLOADS}
    assert registered == files


def test_names_are_unique_and_parameters_have_help() -> None:
    assert len({workload.name for workload in WORKLOADS}) == len(WORKLOADS)
    for workload in WORKLOADS:
        assert all(p.help for p in parameters_of(workload.config))


def test_the_defaults_of_every_workload_are_valid() -> None:
    for workload in WORKLOADS:
        workload.config()


def test_a_name_may_be_written_with_underscores() -> None:
    assert find("cpu_burn") is find("cpu-burn")


@pytest.mark.parametrize(("name", "remedy"), [("mnits", "did you mean mnist"), ("xyz", "there are mnist, .*cpu-burn")])
def test_an_unknown_workload_gets_a_remedy(name: str, remedy: str) -> None:
    with pytest.raises(MisuseError, match=f"unknown workload {name}: {remedy}"):
        find(name)
