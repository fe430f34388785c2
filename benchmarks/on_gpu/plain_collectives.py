"""Collectives as anybody would time them with torch alone, and their ratio to those of the workload `collectives`.

    torchrun --standalone --nproc-per-node 8 plain_collectives.py SIZE... > plain.txt
    python3 plain_collectives.py --beside FOLDER      # with events.0.0.jsonl and plain.txt in a folder for each turn

A line has the operation, the bytes of the larger buffer, and the seconds of a call.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

CALLS, WARMUP, ROUNDS = 20, 5, 5


def main() -> None:
    """Measure, or print ratios."""
    if sys.argv[1] == "--beside":
        compare(Path(sys.argv[2]))
    else:
        measure([int(size) for size in sys.argv[1:]])


def measure(sizes: list[int]) -> None:
    """Print the seconds of each operation at each size on rank 0."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    for size in sizes:
        for name, call in calls_of(size, rank, ranks, device).items():
            seconds = median(seconds_of(call, device) for _ in range(ROUNDS))
            if rank == 0:
                print(name, size, seconds, flush=True)
    dist.destroy_process_group()


def calls_of(size: int, rank: int, ranks: int, device: torch.device) -> dict[str, Callable[[], object]]:
    """Return each operation on buffers of that size."""
    # torch 2.13 has new names for these.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    whole, other = (torch.zeros(size // 4 // ranks * ranks, device=device) for _ in range(2))
    part = torch.zeros(len(whole) // ranks, device=device)

    def exchange() -> None:
        sending = dist.P2POp(dist.isend, whole, (rank + 1) % ranks)
        receiving = dist.P2POp(dist.irecv, other, (rank - 1) % ranks)
        for work in dist.batch_isend_irecv([sending, receiving]):
            work.wait()

    return {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: gather(whole, part),
        "reduce_scatter": lambda: scatter(part, whole),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
        "broadcast": lambda: dist.broadcast(whole, src=0),
        "send_recv": exchange,
    }


def seconds_of(call: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of a call in a row of them, by the host's clock."""
    for _ in range(WARMUP):
        call()
    dist.barrier()
    wait(device)
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    wait(device)
    return (time.perf_counter() - began) / CALLS


def wait(device: torch.device) -> None:
    """Wait until the GPU has done everything."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def compare(folder: Path) -> None:
    """Print both median times of each operation and size over all turns, their ratios, and our bus bandwidth."""
    found: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    for plain in folder.glob("*/plain.txt"):
        events = plain.with_name("events.0.0.jsonl")
        lines = (json.loads(line) for line in events.read_text(encoding="utf-8").splitlines())
        ours = {event["name"]: event["value"] for event in lines if event["event"] == "result"}
        for name, size, seconds in (line.split() for line in plain.read_text(encoding="utf-8").splitlines()):
            own, rate = (ours[f"{name}_{size}_bytes_{what}"] for what in ("seconds", "bus_bytes_per_second"))
            found.setdefault((name, int(size)), []).append((own, float(seconds), rate / 1e9))
    for (name, size_bytes), turns in found.items():
        own, other, rate = (median(column) for column in zip(*turns, strict=True))
        ratios = [turn[0] / turn[1] for turn in turns]
        span = f"{median(ratios):8.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        print(f"{name:15}{size_bytes:>12} B {own * 1e6:10.1f} µs {other * 1e6:10.1f} µs {span} {rate:10.2f} GB/s")


if __name__ == "__main__":
    main()
