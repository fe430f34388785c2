"""Training of the gpt workload.

The optimizer is nanoGPT's (AdamW), with a constant learning rate and without clipping. The sequences of a batch are
windows of the token stream at random places.
"""

import torch
from torch import nn

from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.gpt import Config
from gpuagent_workloads.suite.gpt.model import Gpt, step_flops
from gpuagent_workloads.training.model import make_adamw
from gpuagent_workloads.training.order import Order
from gpuagent_workloads.training.outline import LayerRow, outline
from gpuagent_workloads.training.progress import Progress
from gpuagent_workloads.training.session import Session
from gpuagent_workloads.training.tokens import Stream, batches_of, load_tokens

LEARNING_RATE, BETAS, WEIGHT_DECAY = 3e-4, (0.9, 0.95), 0.1

SYNTHETIC_SEQUENCES = 2_000
VALIDATION_BATCHES = 4


def train_and_validate(config: Config, reporter: Reporter) -> None:
    """Run the workload from its data to the loss on the held-back tokens."""
    tokens = load_tokens(
        config.data,
        vocabulary=config.vocabulary,
        context=config.context,
        count=SYNTHETIC_SEQUENCES * config.context + 1,
        seed=config.seed,
        reporter=reporter,
    )
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
    reporter.result("validation_loss", _validation_loss(session.model, tokens.validation, config, session.device))


def layers(config: Config) -> list[LayerRow]:
    """Return the layers of the network, with its loss."""
    with torch.device("meta"):
        model = Gpt(config)
        tokens_BL = torch.empty(config.batch_size, config.context, dtype=torch.long)
        return outline({"": model}, lambda: model(tokens_BL, tokens_BL))


def _validation_loss(model: nn.Module, tokens: Stream, config: Config, device: torch.device) -> float:
    """Return the mean loss over a few batches, in nats, computed in float32."""
    model.eval()
    order = Order(len(tokens) - config.context, config, Progress(), drawn=True)
    batches = batches_of(tokens, config.context, order, device)
    with torch.inference_mode():
        losses = [model(*next(batches)) for _ in range(VALIDATION_BATCHES)]
    return torch.stack(losses).mean().item()
