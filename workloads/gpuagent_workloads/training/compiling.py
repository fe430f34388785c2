"""Compilation of models with torch.compile."""

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gpuagent_common.errors import MisuseError

# Used by torch for CPU kernels, and by Triton for the code that launches its kernels.
_COMPILERS = {"cpu": ("g++", "clang++"), "cuda": ("gcc", "cc", "clang")}

# torch.compile refuses older GPUs, since Triton does not support them.
_TRITON_NEEDS_CAPABILITY = (7, 0)

# torch's variable for the folder of compiled programs.
_CACHE = "TORCHINDUCTOR_CACHE_DIR"


def compiled(model: nn.Module, wanted: bool, device: torch.device) -> Callable[..., torch.Tensor]:
    """Return the model's compiled form if `wanted`, which shares its weights, or the model itself.

    The model is unchanged: test it and count its FLOPs without compiling it again. Compilation takes place in the first
    step. A model with a method `compile_parts` does that itself, and is returned. Raises MisuseError: it cannot be
    compiled here.
    """
    if not wanted:
        return model
    capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
    reason = refusal(capability, shutil.which)
    if reason:
        raise MisuseError(reason)
    if not os.environ.get(_CACHE):
        os.environ[_CACHE] = str(private_cache(Path(tempfile.gettempdir())))
    parts = getattr(model.module if isinstance(model, DistributedDataParallel) else model, "compile_parts", None)
    if parts is not None:
        parts()
        return model
    # Shapes never change here, and kernels for fixed shapes are the fastest.
    forward: Callable[..., torch.Tensor] = torch.compile(model, dynamic=False)
    return forward


def refusal(capability: tuple[int, int] | None, which: Callable[[str], str | None]) -> str | None:
    """Return the reason why models cannot be compiled, None if they can.

    Args:
        capability: compute capability of the GPU; None: it is a CPU.
        which: finds a program on the path, as `shutil.which`.
    """
    if capability is not None and capability < _TRITON_NEEDS_CAPABILITY:
        major, minor = capability
        return f"--compile needs compute capability 7.0; this GPU has {major}.{minor}: omit it"
    variable, kind = ("CXX", "cpu") if capability is None else ("CC", "cuda")
    candidates: Sequence[str] = [os.environ[variable]] if os.environ.get(variable) else _COMPILERS[kind]
    if any(which(candidate) for candidate in candidates):
        return None
    return (
        f"--compile needs a compiler ({' or '.join(candidates)}): install one, name it in {variable}, or omit --compile"
    )


def private_cache(folder: Path) -> Path:
    """Return this user's folder in `folder` for compiled programs, which torch loads again in later runs.

    torch's own choice has the user's name, and another user could make it first and put programs into it. Raises
    MisuseError: another user made it, or may write to it.
    """
    cache = folder / f"gpuagent-torch-{os.geteuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    found = cache.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise MisuseError(f"{cache} is not a folder of yours alone; name another in {_CACHE}")
    return cache
