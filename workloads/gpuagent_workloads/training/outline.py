"""The layers of a network, with the shape, parameters, operations and bytes of each, counted on the meta device."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

# Of parametrised weights, such as spectrally normalised ones: parts of their layer, without rows.
_PARTS = "parametrizations"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow:
    """One layer in the forward pass of one batch."""

    layer: str
    type: str
    # With the batch.
    output_shape: tuple[int, ...]
    # Those that no layer before it has.
    parameters: int
    # Of matrix products and convolutions, forward, without those of inner layers.
    flops: int
    # Of its output, in float32.
    output_bytes: int
    # Least bytes to and from memory: input, weights and output once each. None: inner layers have them.
    moved_bytes: int | None


def outline(networks: Mapping[str, nn.Module], forward: Callable[[], object]) -> list[LayerRow]:
    """Return the layers that `forward` calls, in their order; each has a row that computes or has parameters itself.

    Args:
        networks: by the beginning of their layers' names, on the meta device, where no values are computed.
        forward: a forward pass of one batch through all of them.
    """
    rows: list[LayerRow | None] = []
    # Of each layer under way: its place among the rows, the FLOPs when it began, and those of its inner layers.
    calls: list[list[int]] = []
    seen: set[int] = set()
    called: set[nn.Module] = set()

    def before(module: nn.Module, _inputs: Any) -> None:
        called.add(module)
        calls.append([len(rows), counter.get_total_flops(), 0])
        rows.append(None)

    def after(name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        place, began, inner = calls.pop()
        flops = counter.get_total_flops() - began
        if calls:
            calls[-1][2] += flops
        # Parts that are never called themselves, such as weights' parametrisations, compute within their layer.
        parts = [module.parameters(recurse=False), *(c.parameters() for c in module.children() if c not in called)]
        weights = [one for one in chain(*parts) if id(one) not in seen]
        seen.update(map(id, weights))
        is_leaf = not any(part in called for part in module.modules() if part is not module)
        if is_leaf or flops > inner or weights:
            rows[place] = _row(name, module, flops - inner, weights, inputs, output, is_leaf=is_leaf)

    handles = []
    for prefix, network in networks.items():
        for name, module in network.named_modules():
            if _PARTS not in name.split("."):
                full_name = ".".join(part for part in (prefix, name) if part) or "(network)"
                handles.append(module.register_forward_pre_hook(before))
                handles.append(module.register_forward_hook(partial(after, full_name)))
    try:
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
    return [row for row in rows if row]


def outline_network(build: Callable[[], nn.Module], *shape: int, dtype: torch.dtype | None = None) -> list[LayerRow]:
    """Return the layers of a network for a batch of that shape."""
    with torch.device("meta"):
        model, batch = build(), torch.empty(shape, dtype=dtype)
    return outline({"": model}, lambda: model(batch))


def _row(
    name: str, module: nn.Module, flops: int, weights: list[nn.Parameter], inputs: Any, output: Any, *, is_leaf: bool
) -> LayerRow:
    outputs = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]
    moved = [*outputs, *weights, *(leaf for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor))]
    return LayerRow(
        layer=name,
        # A parametrised layer has a class of its own.
        type=type(module).__name__.removeprefix("Parametrized"),
        output_shape=tuple(outputs[0].shape),
        parameters=sum(one.numel() for one in weights),
        flops=flops,
        output_bytes=sum(one.nbytes for one in outputs),
        moved_bytes=sum(one.nbytes for one in moved) if is_leaf else None,
    )
