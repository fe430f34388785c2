"""Trains VGG-16 on images of 224 pixels.

    python -m gpuagent_workloads run vgg16 --batches 15 --precision bf16 --channels-last

With the images of tiny-imagenet-200 instead of synthetic ones:

    gpuagent prepare vgg16 --data ~/tiny-imagenet-200
    python -m gpuagent_workloads run vgg16 --data ~/tiny-imagenet-200 --batches 15

With ReLU and pooling swapped, on the batches of the study that compared both orders:

    python -m gpuagent_workloads run vgg16 --order swapped --batch-size 128 --warmup 5 --steps 10
"""

from dataclasses import dataclass

from gpuagent_workloads.classification.config import ClassificationConfig
from gpuagent_workloads.classification.data import DATASET, prepare
from gpuagent_workloads.parameters import parameter
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.workload import Workload

# For batches of 256, as in pytorch/examples.
LEARNING_RATE = 0.01

ORDERS = ("normal", "swapped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ClassificationConfig):
    """The shared parameters, and the order of layers."""

    order: str = parameter("normal", help="ReLU before MaxPool, or swapped: after it, on fewer values", choices=ORDERS)


def run(config: Config, reporter: Reporter) -> None:
    """Train.

    Raises:
        MisuseError: the device, the precision, the batch size or the classes do not fit.
        DataError: the data cannot be used.
        NonFiniteError: the loss became NaN or infinite.
    """
    reporter.phase("prepare")
    # torch takes a second to import, which nobody should pay who only lists the workloads.
    from gpuagent_workloads.classification.train import train_classifier
    from gpuagent_workloads.classification.vgg import vgg16

    train_classifier(lambda: vgg16(config.classes, swapped=config.order == "swapped"), LEARNING_RATE, config, reporter)


WORKLOAD = Workload(
    name="vgg16",
    summary="Trains VGG-16 on images of 224 pixels (135,079,944 parameters for 200 classes, SGD with momentum).",
    kind="training",
    study="S2: order of layers, data parallelism",
    data="synthetic images made from the seed and kept on the device, or "
    "tiny-imagenet-200's folders (prepare vgg16 fetches 248 MB)",
    memory="on the device about 7 GB for batches of 64, 12 GB for 128; on the host 2 GB",
    config=Config,
    run=run,
    prepare=prepare,
    dataset=DATASET,
)
