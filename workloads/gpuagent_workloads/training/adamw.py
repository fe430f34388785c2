"""The optimizer of the Transformers."""

from torch import nn, optim


def make_adamw(model: nn.Module, learning_rate: float, betas: tuple[float, float], decay: float) -> optim.Optimizer:
    """Return AdamW of the weights that learn: matrices decay, and nothing else. On a GPU it is one kernel."""
    parameters = [weights for weights in model.parameters() if weights.requires_grad]
    groups = [
        {"params": [weights for weights in parameters if weights.dim() >= 2], "weight_decay": decay},
        {"params": [weights for weights in parameters if weights.dim() < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return optim.AdamW(groups, lr=learning_rate, betas=betas, fused=parameters[0].is_cuda)
