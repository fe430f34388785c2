"""Matrix products of the blocks in FP8, by torchao.

Tensors are cast at each use, with one scale each from their largest value: activations and weights to E4M3, gradients
to E5M2. Weights that learn, their gradients and everything else keep their types.
"""

from torch import nn

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.llama.training import LanguageModel


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
