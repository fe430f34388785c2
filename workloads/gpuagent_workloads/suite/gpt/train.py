"""Training of the gpt workload; its options are `Config` in `__init__.py`.

The optimizer is nanoGPT's (AdamW), with a constant learning rate and without clipping. The sequences of a batch are
windows of the token stream at random places. The network is GPT-2's: learned positions, layer norm before each part,
GELU, and the embedding used again as the output.

Shapes: B sequences of a batch, L tokens of a sequence, D features of a token (the width), H heads, K features of a
head, V tokens of the vocabulary.
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, linear, scaled_dot_product_attention

from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.gpt import Config
from gpuagent_workloads.training.model import StepFlops, make_adamw
from gpuagent_workloads.training.progress import Progress
from gpuagent_workloads.training.session import Order, Session
from gpuagent_workloads.training.tokens import batches_of, load_tokens

# Of the weights, as in GPT-2.
INITIAL_DEVIATION = 0.02


class Gpt(nn.Module):
    """A decoder-only Transformer."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(config.vocabulary, config.width)
        self.position_embedding = nn.Embedding(config.context, config.width)
        self.blocks = nn.Sequential(*(Block(config.width, config.heads) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width)
        self.apply(_initialise)

    def forward(self, tokens_BL: torch.Tensor, targets_BL: torch.Tensor) -> torch.Tensor:
        """Return the mean loss, in nats, of predicting each target from the tokens up to its place."""
        positions_L = torch.arange(tokens_BL.shape[1], device=tokens_BL.device)
        x_BLD = self.token_embedding(tokens_BL) + self.position_embedding(positions_L)
        x_BLD = self.norm(self.blocks(x_BLD))
        logits_BLV = linear(x_BLD, self.token_embedding.weight)
        return cross_entropy(logits_BLV.flatten(0, 1), targets_BL.flatten())


class Block(nn.Module):
    """Attention, then a perceptron for each token; both add to their input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x_BLD: torch.Tensor) -> torch.Tensor:
        """Return the input of the next block, shape (B, L, D)."""
        x_BLD = x_BLD + self.attention(self.attention_norm(x_BLD))
        mlp_BLD: torch.Tensor = self.mlp(self.mlp_norm(x_BLD))
        return x_BLD + mlp_BLD


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)

    def forward(self, x_BLD: torch.Tensor) -> torch.Tensor:
        """Return the attention of each token to those up to itself, shape (B, L, D)."""
        q_BHLK, k_BHLK, v_BHLK = (
            part_BLD.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part_BLD in self.queries_keys_values(x_BLD).chunk(3, dim=2)
        )
        taken_BHLK = scaled_dot_product_attention(q_BHLK, k_BHLK, v_BHLK, is_causal=True)
        projected_BLD: torch.Tensor = self.project(taken_BHLK.transpose(1, 2).flatten(2))
        return projected_BLD


def step_flops(config: Config) -> StepFlops:
    """Return the floating-point operations of the matrix products of a step, forward and backward.

    Attention counts as if each token attended to all, though the causal mask makes half of that unnecessary, as in
    PaLM's definition of MFU (Chowdhery et al. 2022, appendix B) and in torch's counter. Flash attention's recomputation
    in the backward pass is not counted.
    """
    weights = 12 * config.width**2
    attention = 2 * config.context * config.width
    per_token = config.layers * (weights + attention) + config.vocabulary * config.width
    return StepFlops(convolutions=0, products=3 * 2 * per_token * config.items_per_step)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=INITIAL_DEVIATION)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


LEARNING_RATE, BETAS, WEIGHT_DECAY = 3e-4, (0.9, 0.95), 0.1

SYNTHETIC_SEQUENCES = 2_000
VALIDATION_BATCHES = 4


def train_and_validate(config: Config, reporter: Reporter) -> None:
    """Run the workload from its data to the loss on the held-back tokens."""
    synthetic_tokens = SYNTHETIC_SEQUENCES * config.context + 1
    tokens = load_tokens(config, config.vocabulary, config.context, synthetic_tokens, reporter)
    session = Session(
        config,
        reporter,
        lambda: Gpt(config),
        lambda model, _ranks: make_adamw(model, LEARNING_RATE, BETAS, WEIGHT_DECAY),
    )
    order = session.order(len(tokens.train) - config.context, drawn=True)
    steps_per_epoch = max(1, len(tokens.train) // (config.items_per_step * session.ranks.size))
    batches = batches_of(tokens.train, config.context, order, session.device)
    session.learn(session.forward, steps_per_epoch, batches)
    session.report(step_flops(config))
    session.model.eval()
    order = Order(len(tokens.validation) - config.context, config, Progress(), drawn=True)
    batches = batches_of(tokens.validation, config.context, order, session.device)
    with torch.inference_mode():
        losses = [session.model(*next(batches)) for _ in range(VALIDATION_BATCHES)]
    reporter.result("validation_loss", torch.stack(losses).mean().item())
