"""A GPU-heavy neighbour of a measured workload: multiplies matrices for a share of the time and holds memory."""

from dataclasses import dataclass

from gpuagent_workloads.workload import Checked, Workload, parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Checked):
    """The share of the GPU, and the duration."""

    load: float = parameter(100.0, help="percent of the work that the GPU can do", minimum=1, maximum=100)
    memory_bytes: int | None = parameter(
        None, help="GPU memory to hold beside the matrices; by default none", minimum=1
    )
    precision: str = parameter(
        "auto",
        help="type of the matrices; auto: the smallest that the hardware multiplies",
        choices=("auto", "fp32", "fp16", "bf16"),
    )
    duration: float | None = parameter(None, help="seconds; by default until it is stopped", minimum=0.1, maximum=1e9)


WORKLOAD = Workload(
    name="gpu-burn",
    summary="Keeps a GPU busy with matrix products for a given share of the time, to run beside what is measured.",
    kind="interference",
    study="S3: multiplexing, on the GPU",
    data="none",
    memory="on the GPU 0.1 GB beside the CUDA context, and --memory-bytes; of the host's about 1 GB",
    config=Config,
    entry="gpuagent_workloads.suite.gpu_burn.burn:burn",
    first_phase="setup",
)
