"""The arithmetic of a training step."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.report import Reporter

# With fp8 that of all but the layers in FP8.
AUTOCAST = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.bfloat16}

# Compute capability from which the hardware has it. Emulation is refused: it would time something else.
_NEEDS_CAPABILITY = {"tf32": (8, 0), "fp16": (5, 3), "bf16": (8, 0), "fp8": (8, 9)}


class Precision:
    """A precision: torch's flags, autocast and the scaling of gradients.

    `name` is one of `config.PRECISIONS` or fp8; `dtype` is the type of autocast, None where it is off.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        """Set the flags. Raises MisuseError where the device lacks it."""
        if device.type == "cuda":
            reason = refusal(name, torch.cuda.get_device_capability(device), torch.cuda.get_device_name(device))
        else:
            reason = refusal(name, None)
        if reason:
            raise MisuseError(reason)
        if name in ("fp32", "tf32"):
            torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
            torch.backends.cudnn.allow_tf32 = name == "tf32"
        self.name = name
        self._device = device
        self.dtype = AUTOCAST.get(name)
        # Half precision underflows without it; bfloat16 has the range of float32.
        self._scaler = torch.amp.GradScaler(device.type) if name == "fp16" else None

    def autocast(self) -> AbstractContextManager[object]:
        """Return the context for the forward pass and the loss."""
        return torch.autocast(self._device.type, self.dtype) if self.dtype else nullcontext()

    def update(self, loss: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
        """Compute the gradients of `loss`, a scalar, and take a step of the optimizer."""
        optimizer.zero_grad()
        if self._scaler is None:
            loss.backward()
            optimizer.step()
            return
        self._scaler.scale(loss).backward()
        self._scaler.step(optimizer)
        self._scaler.update()

    def state_dict(self) -> dict[str, Any]:
        """Return the gradient scaler's state, empty without a scaler."""
        return self._scaler.state_dict() if self._scaler else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        if self._scaler:
            self._scaler.load_state_dict(state)

    def report(self, reporter: Reporter) -> None:
        """Report the flags in force, and the meaning of a step's wall time."""
        reporter.result("precision", self.name)
        reporter.result("autocast", str(self.dtype).removeprefix("torch.") if self.dtype else "none")
        reporter.result("step_timing", "enqueue" if self._device.type == "cuda" else "synchronised")
        if self._device.type == "cuda":
            reporter.result("tf32_matmul", int(torch.backends.cuda.matmul.allow_tf32))
            reporter.result("tf32_cudnn", int(torch.backends.cudnn.allow_tf32))


def refusal(name: str, capability: tuple[int, int] | None, device: str = "this GPU") -> str | None:
    """Return the reason why a device lacks a precision, None if it has it.

    Args:
        name: one of `config.PRECISIONS` or fp8.
        capability: compute capability of the GPU; None: it is a CPU.
        device: its name.
    """
    if capability is None:
        missing = name in ("tf32", "fp16", "fp8")
        return f"--precision {name} needs a GPU; default, fp32 and bf16 run on a CPU" if missing else None
    needed = _NEEDS_CAPABILITY.get(name, (0, 0))
    if capability >= needed:
        return None
    major, minor = capability
    return (
        f"--precision {name} needs compute capability {needed[0]}.{needed[1]}; {device} has {major}.{minor}: "
        f"use {'bf16' if capability >= _NEEDS_CAPABILITY['bf16'] else 'default or fp32'}"
    )
