"""Measures the best rates of a device: the roofs for a workload's figures."""

from dataclasses import dataclass

from gpuagent_workloads.training.config import DEVICES
from gpuagent_workloads.workload import Checked, Workload, parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Checked):
    """The device, and the extent of the measurement."""

    device: str = parameter("auto", help="what to measure; auto: a GPU if there is one", choices=DEVICES)
    ranks: int | None = parameter(None, help="processes of the all-reduce, a GPU each; by default all GPUs", minimum=1)
    threads: int | None = parameter(None, help="CPU threads; by default torch's", minimum=1)
    quick: bool = parameter(False, help="small sizes and few repeats: only to test the workload")


WORKLOAD = Workload(
    name="ceilings",
    summary="Measures roofs: matrix products by type, memory and copy bandwidth, launch latency, all-reduce bandwidth.",
    kind="measurement",
    study="S4: roofline models, whose roofs were taken from datasheets",
    data="none; the matrices are random",
    memory="up to half of the free memory of the device, 7 GB at most; 1 GB of the host's",
    config=Config,
    entry="gpuagent_workloads.suite.ceilings.measure:measure",
    first_phase="setup",
)
