"""Trains ResNet-18, ResNet-50, AlexNet, VGG-16 or ViT-B/16 on images of 224 pixels."""

from dataclasses import dataclass

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.training.config import SYNTHETIC, ImageTrainingConfig
from gpuagent_workloads.workload import Workload, parameter

# Pixels on each side of ViT's patches.
VIT_PATCH = 16

# The folder name of tiny-imagenet-200 in the cache, where all workloads with such images find it.
DATASET, PREPARATION = "tiny-imagenet-200", "gpuagent_workloads.data.tiny_imagenet:TINY_IMAGENET.prepare"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassificationConfig(ImageTrainingConfig):
    """The shared parameters, and those of networks for large images."""

    batch_size: int = parameter(64, help="images a step", minimum=1)
    warmup: int = parameter(5, help="steps before the measured ones", minimum=0)
    classes: int = parameter(200, help="classes to distinguish", minimum=2, maximum=100_000)
    # AlexNet leaves nothing of images smaller than 63 pixels.
    image_size: int = parameter(224, help="pixels on each side of an image", minimum=64, maximum=1024)
    data: str = parameter(SYNTHETIC, help="directory of tiny-imagenet-200 or ImageNet, or synthetic", path=True)
    workers: int | None = parameter(
        None, help="processes that decode images; by default the number of CPUs, at most 16", minimum=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Vgg16Config(ClassificationConfig):
    """The shared parameters, and the order of layers."""

    order: str = parameter(
        "normal", help="ReLU before MaxPool, or swapped: after it, on fewer values", choices=("normal", "swapped")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VitConfig(ClassificationConfig):
    """The shared parameters, with images of whole patches."""

    def check_together(self) -> None:
        """Check the size of images."""
        if self.image_size % VIT_PATCH:
            raise MisuseError(f"--image-size {self.image_size} must be a multiple of {VIT_PATCH}, a patch's side")


_CONFIGS: dict[str, type[ClassificationConfig]] = {"vgg16": Vgg16Config, "vit": VitConfig}


# Title, parameters for 200 classes, study, and memory.
_NETWORKS = {
    "resnet18": ("ResNet-18", "11,279,112", "S4", "2 GB for batches of 64, twice that for 128; on the host 1 GB"),
    "resnet50": ("ResNet-50", "23,917,832", "S4", "6 GB for batches of 64, twice that for 128; on the host 1 GB"),
    "alexnet": ("AlexNet", "57,823,240", "S4", "1.5 GB for batches of 64; on the host 1.5 GB"),
    "vgg16": ("VGG-16", "135,079,944", "S2", "7 GB for batches of 64, 12 GB for 128; on the host 2 GB"),
    "vit": ("ViT-B/16", "85,952,456", "none", "10 GB for batches of 64, estimated; on the host 2 GB"),
}

_STUDIES = {
    "S2": "S2: order of layers, data parallelism",
    "S4": "S4: virtual machine and container in it compared",
    "none": "none of the five: a workload of today's GPUs",
}

WORKLOADS = tuple(
    Workload(
        name=name,
        summary=f"Trains {title} on images of 224 pixels ({parameters} parameters for 200 classes, "
        f"{'AdamW' if name == 'vit' else 'SGD with momentum'}).",
        kind="training",
        study=_STUDIES[study],
        data="synthetic images made from the seed and kept on the device, or "
        f"tiny-imagenet-200's folders (prepare {name} fetches 248 MB)",
        memory=f"on the device about {memory}",
        config=_CONFIGS.get(name, ClassificationConfig),
        entry=f"gpuagent_workloads.suite.classification.train:{name}.train",
        preparation=PREPARATION,
        dataset=DATASET,
    )
    for name, (title, parameters, study, memory) in _NETWORKS.items()
)
