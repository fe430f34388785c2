"""The command `serve`: a server of the built-in model, for tests and comparisons without any download."""

from functools import partial
from typing import Any

import click

from gpuagent_common.cli import MOST
from gpuagent_workloads.llama.presets import PRESETS

_COUNT = click.IntRange(1, MOST)


@click.command("serve")
@click.option("--model", type=click.Choice([*PRESETS]), default="tiny", show_default=True, help="Size of the model.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port to listen on.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True, help="Device.")
@click.option("--dtype", type=click.Choice(["auto", "fp32", "bf16"]), default="auto", help="Of weights and cache.")
@click.option("--slots", type=_COUNT, default=16, show_default=True, help="Most requests in one batch.")
@click.option("--context", type=_COUNT, default=4096, show_default=True, help="Most tokens of a request.")
@click.option("--prefill", type=_COUNT, default=2048, show_default=True, help="Tokens of prompts between two steps.")
@click.option("--threads", type=_COUNT, help="CPU threads; by default torch's.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=1, show_default=True, help="Seed of the weights.")
def command(
    model: str, host: str, port: int, device: str, dtype: str, context: int, threads: int | None, **limits: Any
) -> None:
    """Serve a Llama model with random weights, by OpenAI's API.

    A byte is a token. Nothing is downloaded, and every answer has as many tokens as were asked for.
    """
    import torch
    import uvicorn

    from gpuagent_workloads.serving.app import Server
    from gpuagent_workloads.serving.engine import Engine
    from gpuagent_workloads.training.device import choose_device

    if threads:
        torch.set_num_threads(threads)
    place = choose_device(device)
    types = {"fp32": torch.float32, "bf16": torch.bfloat16}
    kind = types.get(dtype) or (torch.bfloat16 if place.type == "cuda" else torch.float32)
    size = PRESETS[model]
    make = partial(Engine, size, context=context, device=place, dtype=kind, **limits)
    server = Server(model, context=context, vocabulary=size.vocabulary, load=make)
    config = uvicorn.Config(server.app, host=host, port=port, log_level="warning", timeout_graceful_shutdown=1)
    server.run(uvicorn.Server(config))
