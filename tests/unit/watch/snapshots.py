from dataclasses import replace
from datetime import datetime

from gpuagent_collector.watch.snapshot import GPU_COLUMNS, HOST_COLUMNS, GpuNow, NodeNow, RunNow, Snapshot

GPU = GpuNow(
    node_id=1,
    device_id=1,
    parent_device_id=None,
    uuid="GPU-1",
    device_index=0,
    gpu_instance_id=None,
    name="NVIDIA H200",
    figures=dict.fromkeys(GPU_COLUMNS)
    | {
        "memory_total_bytes": 150_754_820_096,
        "power_limit_watts": 700.0,
        "utilization_percent": 98.0,
        "sm_active_percent": 57.4,
        "tensor_active_percent": 40.0,
        "dram_active_percent": 12.0,
        "memory_used_bytes": 112_000_000_000,
        "power_watts": 651.7,
        "temperature_celsius": 61.0,
        "sm_clock_mhz": 1980.0,
        "throttle_reasons": 0,
        "process_count": 1,
        "energy_joules": 1e6,
    },
)
OLD_GPU = replace(
    GPU,
    device_id=2,
    name="Tesla K80",
    figures={**GPU.figures, "utilization_percent": None, "sm_active_percent": None, "throttle_reasons": None},
)
NODE = NodeNow(
    node_id=1,
    node_uuid="node-1",
    hostname="alder",
    platform="satori",
    cpu_threads=128,
    sample_age_seconds=0.4,
    heard_age_seconds=0.9,
    ended_age_seconds=None,
    clock_offset_seconds=0.001,
    figures=dict.fromkeys(HOST_COLUMNS)
    | {
        "cpu_percent": 17.3,
        "memory_used_bytes": 95_000_000_000,
        "memory_total_bytes": 1_145_000_000_000,
        "load_1m": 21.5,
        "disk_read_bytes_per_second": 0.0,
    },
    gpus=[
        GPU,
        replace(
            GPU,
            device_id=3,
            device_index=1,
            figures={**GPU.figures, "utilization_percent": 3.0, "throttle_reasons": 0x40},
        ),
    ],
)
SILENT = replace(
    NODE,
    node_id=2,
    hostname="birch\x1b[31m",
    platform="openshift",
    sample_age_seconds=None,
    heard_age_seconds=272.0,
    figures={**NODE.figures, "cpu_percent": None, "memory_used_bytes": None},
    gpus=[],
)
LEFT = replace(SILENT, node_id=4, hostname="dune", ended_age_seconds=270.0)
WRONG_CLOCK = replace(
    NODE,
    node_id=3,
    hostname="cedar",
    platform="lab",
    sample_age_seconds=19.0,
    clock_offset_seconds=-75.0,
    gpus=[OLD_GPU],
)
RUN = RunNow(
    run_id="mnist-1a2b3c4d5e",
    workload="mnist",
    platform="satori",
    hostname="alder",
    interference="none",
    repeat=1,
    status="running",
    exit_code=None,
    reason=None,
    phase="measure",
    elapsed_seconds=725.0,
    ended_age_seconds=None,
    items_per_second=36_728.4,
)
FAILED = replace(
    RUN,
    run_id="gpt-0123456789",
    workload="gpt",
    hostname="cedar",
    interference="cpu-burn",
    status="failed",
    exit_code=1,
    reason="ended with 1: out of memory",
    elapsed_seconds=3.2,
    ended_age_seconds=640.0,
    items_per_second=None,
)
SNAPSHOT = Snapshot(taken_at=datetime(2030, 1, 1, 12), nodes=[NODE, SILENT, WRONG_CLOCK], runs=[RUN, FAILED])  # noqa: DTZ001 - as the store holds times


def large(nodes: int) -> Snapshot:
    gpus = [replace(GPU, device_id=index, device_index=index) for index in range(8)]
    many = [
        replace(
            NODE,
            node_id=number,
            hostname=f"node-{number:03}",
            figures={**NODE.figures, "cpu_percent": float(number)},
            gpus=gpus,
        )
        for number in range(nodes)
    ]
    return replace(SNAPSHOT, nodes=many)
