"""Processes on a GPU and the runs they belong to."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuagent.sources.nvml_processes import NvmlProcesses
from gpuagent.sources.source import SourceContext
from tests.support.nvml_replay import NvmlRecording
from tests.support.trees import instant, plant


class OneRun:
    def processes(self) -> Sequence[tuple[str, int]]:
        return (("run", 4700),)


@pytest.mark.parametrize(("namespace", "run_id"), [("pid:[4026531836]", "run"), ("pid:[4026532999]", None)])
def test_a_process_is_a_runs_only_where_numbers_are_the_hosts(tmp_path: Path, namespace: str, run_id: str) -> None:
    stat = "{} (python) S {} 1 1 0 -1 0 0 0 0 0 1 0 0 0 20 0 3 0 77 0 0\n"
    plant(
        tmp_path,
        {
            "loadavg": "0 0 0 1/9 4711\n",
            "4700/stat": stat.format(4700, 1),
            "4711/stat": stat.format(4711, 4700),
            "self/status": "NSpid:\t7\n",
        },
    )
    (tmp_path / "self/ns").mkdir()
    (tmp_path / "self/ns/pid").symlink_to(namespace)
    recording = NvmlRecording.load("busy")
    source = NvmlProcesses(SourceContext(proc=tmp_path, open_nvml=recording.open, runs=OneRun()))
    _, process = source.read(instant(0))
    assert (process.values["pid"], process.values["run_id"]) == (4711, run_id)
    source.close()
