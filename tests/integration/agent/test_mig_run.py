"""A run on a MIG instance, by a real agent, stream and collector; NVML is replayed."""

import json
import sys

from gpuagent_common.keys import key
from tests.support.nvml_replay import NvmlRecording
from tests.support.sites import Site

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
    (node,) = json.loads(site.node.run("collector", "nodes", "--json").stdout)
    assert (node["gpu_names"], node["mig_instances"]) == (["NVIDIA H100 80GB HBM3"], 2)
