"""The Vision Transformer."""

import pytest
import torch

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.suite.classification import VitConfig
from gpuagent_workloads.suite.classification.networks import Vit
from gpuagent_workloads.training.model import count_flops


def test_its_flops_are_those_by_hand() -> None:
    with torch.device("meta"):
        model, images = Vit(1000, 224), torch.empty(2, 3, 224, 224)
    flops = count_flops(lambda: model(images).sum())
    # Images need no gradient.
    assert flops.convolutions == 2 * 2 * 2 * 196 * 768 * 3 * 16**2
    layer = 197 * (4 * 768**2 + 2 * 768 * 3072) + 2 * 197**2 * 768
    assert flops.products == 2 * 3 * 2 * (12 * layer + 768 * 1000)


def test_weights_have_torchvisions_names() -> None:
    with torch.device("meta"):
        names = Vit(1000, 224).state_dict().keys()
    assert {"class_token", "conv_proj.weight", "encoder.pos_embedding", "encoder.ln.bias", "heads.head.weight"} <= names
    layer = "encoder.layers.encoder_layer_11"
    parts = (
        "ln_1.weight",
        "self_attention.in_proj_weight",
        "self_attention.out_proj.bias",
        "mlp.0.weight",
        "mlp.3.bias",
    )
    assert {f"{layer}.{part}" for part in parts} <= names


def test_images_must_be_whole_patches() -> None:
    with pytest.raises(MisuseError, match="multiple of 16"):
        VitConfig(image_size=100)
