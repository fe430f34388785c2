"""Recorded GPUs under a real agent, stream, collector and run; only NVML is replayed."""

import json
import subprocess
import sys

import pytest

from gpuagent_common.keys import key
from tests.support.nvml_replay import ANY, NvmlRecording
from tests.support.sites import Site

pytestmark = pytest.mark.slow

OTHER = "GPU-44444444-dddd-4ddd-8ddd-444444444444"
BUSY = "GPU-55555555-eeee-4eee-8eee-555555555555"
LOST = {"error": 15, "words": "GPU is lost"}
# Those that are read at least once a second; others may not be due while the GPU is lost.
SILENT_SOURCES = {"nvml", "nvml_gpm", "nvml_power", "nvml_processes"}


class TwoGpus:
    def __init__(self) -> None:
        self.nvml = NvmlRecording.load("h200_one_of_two_busy")
        self._well = self.nvml.outcomes

    def lose(self, uuid: str) -> None:
        self.nvml.outcomes = {call: [LOST] if uuid in call else heard for call, heard in self._well.items()}

    def find(self) -> None:
        self.nvml.outcomes = self._well


def begin(site: Site, code: int = 0) -> "subprocess.Popen[str]":
    run = site.node.start("gpuagent", "run", "--", *site.program(code=code), log="run.log")
    site.await_rows("run_states WHERE status = 'running'")
    return run


def rows_of(uuid: str) -> str:
    return f"gpu_samples WHERE device_id = {key(uuid)}"


def test_a_gpu_lost_and_found_leaves_a_gap_and_does_not_change_the_run(site: Site) -> None:
    gpus = TwoGpus()
    with site.agent(gpus.nvml):
        run = begin(site)
        site.await_rows(rows_of(BUSY))
        gpus.lose(BUSY)
        site.await_rows("run_events WHERE event = 'gpu_lost'")
        rows = site.count(rows_of(BUSY))
        site.await_rows(rows_of(OTHER), more_than=site.count(rows_of(OTHER)) + 10)
        assert site.count(rows_of(BUSY)) == rows
        gpus.find()
        site.await_rows("run_events WHERE event = 'gpu_found'")
        site.await_rows(rows_of(BUSY), more_than=rows)
        site.let_go()
        assert run.wait() == 0

    (stored,) = site.ask("SELECT run_id, status FROM runs")
    assert stored["status"] == "succeeded"
    events = "SELECT run_id, event, name, detail->>'reason' AS reason FROM run_events"
    assert site.ask(f"{events} WHERE event LIKE 'gpu%' ORDER BY time") == [
        {"run_id": stored["run_id"], "event": "gpu_lost", "name": BUSY, "reason": "GPU is lost"},
        {"run_id": stored["run_id"], "event": "gpu_found", "name": BUSY, "reason": None},
    ]
    gaps = site.ask("SELECT source, detail FROM gaps WHERE reason = 'source_failed' AND to_time >= from_time")
    assert {gap["source"] for gap in gaps} >= SILENT_SOURCES
    assert {gap["detail"] for gap in gaps} == {f"cannot read {BUSY}: GPU is lost"}
    # It trained: what it told is never 0, so a 0 would stand for what was not read.
    zeros = " OR ".join(f"{column} = 0" for column in ("memory_used_bytes", "power_watts", "sm_clock_mhz"))
    assert site.count(f"{rows_of(BUSY)} AND ({zeros})") == 0


def test_a_gpu_that_stays_lost_leaves_a_gap_with_a_warning(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuagent.sampling.sampler.REPORT_SECONDS", 0.5)
    gpus = TwoGpus()
    with site.agent(gpus.nvml) as running:
        run = begin(site, code=3)
        site.await_rows(rows_of(BUSY))
        gpus.lose(BUSY)
        site.await_rows("run_events WHERE event = 'gpu_lost'")
        site.let_go()
        assert run.wait() == 3
        site.node.run("gpuagent", "run", "--", *site.program())
        assert running.failure is None
        # There is no recovery that would say how long it was.
        site.await_rows("gaps WHERE source = 'nvml'")
    assert site.ask("SELECT status, exit_code FROM runs ORDER BY queued_at") == [
        {"status": "failed", "exit_code": 3},
        {"status": "succeeded", "exit_code": 0},
    ]
    site.node.run("gpuagent", "run", "--platform", "sound", "--", *site.program())
    compared = json.loads(site.node.collector("compare", "--by", "platform", "--json").stdout)
    (caveat,) = [caveat for caveat in compared["warnings"] if caveat["code"] == "gaps"]
    assert "missing in 1 of 1" in caveat["text"]
    (gap,) = site.ask("SELECT min(from_time) AS began FROM gaps WHERE source = 'nvml'")
    assert site.count(f"{rows_of(BUSY)} AND time >= TIMESTAMP '{gap['began']}'") == 0


GPU = "GPU-66666666-aaaa-4aaa-8aaa-666666666666"
SMALL = "MIG-66666666-cccc-5ccc-8ccc-666666666666"

REPORTING = f"""
import os
from gpuagent_workloads.report import Reporter
with Reporter.from_environment() as reporter:
    reporter.device({SMALL!r})
os.execvp("sh", {{command!r}})
"""


def test_a_run_on_an_instance_has_that_instances_figures_and_no_power_of_the_whole_gpu(site: Site) -> None:
    program = REPORTING.format(command=site.program())
    with site.agent(NvmlRecording.load("mig")):
        run = site.node.start("gpuagent", "run", "--", sys.executable, "-c", program, log="run.log")
        site.await_rows(f"gpu_samples WHERE device_id = {key(SMALL)} AND sm_active_percent IS NOT NULL", more_than=5)
        site.await_rows("run_devices")
        site.let_go()
        assert run.wait() == 0
        site.await_rows("run_metrics")
        figures = {row["metric"]: row["value"] for row in site.ask("SELECT metric, value FROM metrics")}
    assert figures["gpu_memory_used_bytes"] == 1_100_000_000
    assert figures["sm_active_percent"] == 12.25
    assert not {"gpu_power_watts", "gpu_energy_joules", "gpu_utilization_percent"} & set(figures)
    (device,) = site.ask(f"SELECT name, parent_device_id, gpu_slices FROM devices WHERE device_id = {key(SMALL)}")
    assert device == {"name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "parent_device_id": key(GPU), "gpu_slices": 1}
    (node,) = json.loads(site.node.collector("nodes", "--json").stdout)
    assert (node["gpu_names"], node["mig_instances"]) == (["NVIDIA H100 80GB HBM3"], 2)


def test_a_driver_that_does_not_answer_is_named_before_a_run_and_a_missing_one_is_not(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    for code, is_named in ((4, True), (9, True), (18, True), (999, True), (12, False)):
        caplog.clear()
        with site.agent(NvmlRecording({ANY: [{"error": code, "words": "broken"}]})):
            done = site.node.run("gpuagent", "run", "--", "true")
        # Of the node's agent in the output of the command, and of a command's own agent in its log.
        for said in (done.stderr, caplog.text):
            assert [line for line in said.splitlines() if "broken" in line] == [
                line for line in said.splitlines() if "GPU is measured" in line
            ]
            assert said.count("no GPU is measured") == is_named, code
