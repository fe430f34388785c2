from pathlib import Path

import pytest

from gpuagent import environments
from gpuagent.environments import ENVIRONMENTS, find_environment
from gpuagent.errors import MisuseError

CONTRACT = {"__init__", "environment"}


def test_every_file_of_the_folder_is_listed() -> None:
    files = {path.stem for path in Path(environments.__file__).parent.glob("*.py")} - CONTRACT
    assert {type(environment).__module__.rpartition(".")[2] for environment in ENVIRONMENTS} == files


def test_no_name_means_bare_and_an_unknown_one_is_refused() -> None:
    assert find_environment("").name == "bare"
    with pytest.raises(MisuseError, match="there are: bare"):
        find_environment("dokcer")
