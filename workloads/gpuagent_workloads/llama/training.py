"""The Llama network with its loss, as it is trained: whole or by adapters, with activations kept or computed again.

Matrix products of the blocks in FP8 are torchao's. Tensors are cast at each use, with one scale each from their largest
value: activations and weights to E4M3, gradients to E5M2. Weights that learn, their gradients and everything else keep
their types.

Shapes: B sequences of a batch, L tokens of each, D features of a token, N tokens whose loss is computed at a time.
"""

from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.llama import Size
from gpuagent_workloads.llama.model import INITIAL_DEVIATION, Block, Llama, rotations

# The factor of adapters (alpha by rank), as in torchtune's recipes.
LORA_SCALE = 2


class LanguageModel(nn.Module):
    """The network and its loss, which sharding needs in one module."""

    def __init__(
        self, size: Size, context: int, *, lora: int | None = None, recompute: bool = False, chunk: int | None = None
    ) -> None:
        """Make the network; `materialise` gives it its weights.

        Args:
            context: the most tokens of a sequence.
            lora: rank of adapters, which learn instead of the weights; None: all weights learn.
            recompute: keep only the input of each block, and compute the others again in the backward pass.
            chunk: tokens whose scores are computed at a time, again in the backward pass; None: all, once.
        """
        super().__init__()
        self.llama = Llama(size, context)
        self.context, self.chunk = context, chunk
        for block in self.blocks():
            block.recompute = recompute
            if lora is not None:
                # Put adapters beside all linear layers of a block, as QLoRA does.
                for name, layer in list(block.named_children()):
                    if isinstance(layer, nn.Linear):
                        setattr(block, name, Adapter(layer, lora))
        if lora is not None:
            for name, weights in self.named_parameters():
                weights.requires_grad_(".lora_a." in name or ".lora_b." in name)
        self._sum_losses: Callable[..., torch.Tensor] = self.sum_losses

    def forward(self, tokens_BL: torch.Tensor, targets_BL: torch.Tensor) -> torch.Tensor:
        """Return the mean loss, in nats, of predicting each target from the tokens up to its place."""
        x_ND, targets_N = self.llama(tokens_BL).flatten(0, 1), targets_BL.flatten()
        if self.chunk is None:
            loss = self._sum_losses(x_ND, targets_N)
        else:
            chunks = zip(x_ND.split(self.chunk), targets_N.split(self.chunk), strict=True)
            losses = [checkpoint(self._sum_losses, *both, use_reentrant=False) for both in chunks]
            loss = torch.stack(losses).sum()
        return loss / targets_N.numel()

    def sum_losses(self, x_ND: torch.Tensor, targets_N: torch.Tensor) -> torch.Tensor:
        """Return the sum of the losses of some tokens, given their features."""
        loss = cross_entropy(self.llama.logits(x_ND), targets_N, reduction="sum")
        return loss.to_local() if isinstance(loss, DTensor) else loss

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks of the network."""
        yield from (block for block in self.llama.blocks if isinstance(block, Block))

    def compile_parts(self) -> None:
        """Compile one block, whose code serves all of them, and the loss."""
        # Blocks are small enough to overlap with the exchange of gradients as they are.
        torch._dynamo.config.optimize_ddp = False  # noqa: SLF001 - the documented name of the setting
        for block in self.blocks():
            block.compute = torch.compile(block.compute, dynamic=False)  # type: ignore[method-assign]
        self._sum_losses = torch.compile(self.sum_losses, dynamic=False)


class Adapter(nn.Module):
    """A layer whose weights stay, and two small ones in a row beside it, which learn (LoRA, Hu et al. 2021)."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer
        self.lora_a = nn.Linear(layer.in_features, rank, bias=False)
        self.lora_b = nn.Linear(rank, layer.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's output plus the adapter's."""
        out: torch.Tensor = self.layer(x) + LORA_SCALE * self.lora_b(self.lora_a(x))
        return out


@torch.no_grad()
def materialise(model: LanguageModel, device: torch.device, seed: int, frozen: torch.dtype | None = None) -> None:
    """Give a model on the meta device, sharded or not, its first weights: the same however it is sharded.

    Matrices get normal ones and norms ones; adapters begin without effect.

    Args:
        frozen: type of weights that do not learn; None: float32.
    """
    if frozen is not None:
        for weights in model.parameters():
            if not weights.requires_grad:
                weights.data = weights.data.to(frozen)
    model.to_empty(device=device)
    random = torch.Generator(device).manual_seed(seed)
    for name, weights in model.named_parameters():
        if weights.dim() == 1:
            weights.fill_(1)
        elif ".lora_b." in name:
            weights.zero_()
        else:
            # Each rank draws all values of one matrix after the other, and keeps its own.
            whole = torch.empty(weights.shape, device=device).normal_(std=INITIAL_DEVIATION, generator=random)
            if isinstance(weights, DTensor):
                whole = distribute_tensor(whole, weights.device_mesh, weights.placements, src_data_rank=None)
            weights.copy_(whole)
    size = model.llama.size
    model.llama.turns_LK = rotations(model.context, size.width // size.heads, size.rope_base).to(device)


def float8_layers(model: LanguageModel) -> dict[str, nn.Linear]:
    """Return the layers whose products can be in FP8, by their names in `model.llama.blocks`: all but adapters."""
    return {
        name: layer
        for name, layer in model.llama.blocks.named_modules()
        if isinstance(layer, nn.Linear) and not name.endswith((".lora_a", ".lora_b"))
    }


def convert_blocks(model: LanguageModel, *, emulate: bool) -> None:
    """Replace the layers of `float8_layers` by torchao's, which have the same weights under the same names.

    Args:
        model: the model, before it is sharded or compiled.
        emulate: multiply in float32 what was rounded to FP8, for hardware without FP8.

    Raises:
        MisuseError: torchao is missing.
    """
    # Only --precision fp8 needs it, and its import takes seconds.
    try:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    except ImportError as error:
        raise MisuseError(
            f"--precision fp8 needs torchao that fits this torch ({error}): pip install torchao"
        ) from error
    names = float8_layers(model).keys()
    convert_to_float8_training(
        model.llama.blocks,
        config=Float8LinearConfig(emulate=emulate),
        module_filter_fn=lambda _layer, name: name in names,
    )


def count_converted(model: nn.Module) -> int:
    """Return the number of layers that `convert_blocks` replaced."""
    return sum(isinstance(layer, nn.Linear) and type(layer) is not nn.Linear for layer in model.modules())
