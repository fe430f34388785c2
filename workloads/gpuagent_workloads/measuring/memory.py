"""How much memory there is to measure with."""

import torch


def free_gpu_bytes(device: torch.device) -> int:
    """Return what is free on a GPU, what torch keeps for later and nobody uses included."""
    torch.cuda.empty_cache()
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return int(free_bytes)
