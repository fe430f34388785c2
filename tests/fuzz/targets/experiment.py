"""Experiment files: an experiment that can be planned, or words with the file's name and mostly line and column."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from gpuagent.experiment.file import parse_experiment
from gpuagent_common.errors import MisuseError
from tests.fuzz.tally import Attempt

TOKENS = (
    b"name: |workloads:|- workload: |command: |parameters:|repeats: |limits:|with:|cool_down:|budget:|answer:|"
    b"labels:|environments:|seed: |once: |warm_up: |? |!!bool |!!int |!!float |!!timestamp |!!set |!!binary |!!null |"
    b'&a |*a|<<: |"\\ud800"|"\\0"|.inf|.nan|0x|1:60|{|}|[|]|2020-01-01|--- '
).split(b"|")
_NAME = "study.yaml"


@contextmanager
def opened(folder: Path) -> Iterator[Attempt]:
    """Parse."""
    yield _attempt


def _attempt(data: bytes) -> None:
    try:
        experiment = parse_experiment(data, _NAME)
    except MisuseError as error:
        assert str(error).startswith(_NAME) and "\n" not in str(error)
        return
    _check(asdict(experiment))


def _check(value: object) -> None:
    """Texts go into arguments, journals and messages: they are UTF-8 without NUL, and keys are texts."""
    if isinstance(value, dict):
        for key, each in value.items():
            _check(each)
            assert isinstance(key, str)
            _check(key)
    elif isinstance(value, list | tuple):
        for each in value:
            _check(each)
    elif isinstance(value, str):
        assert b"\0" not in value.encode()
