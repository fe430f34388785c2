"""Trains ResNet-50 on images of 224 pixels.

    python -m gpuagent_workloads run resnet50 --batches 15 --precision bf16 --channels-last

With the images of tiny-imagenet-200 instead of synthetic ones:

    gpuagent prepare resnet50 --data ~/tiny-imagenet-200
    python -m gpuagent_workloads run resnet50 --data ~/tiny-imagenet-200 --batches 15
"""

from gpuagent_workloads.classification.config import ClassificationConfig
from gpuagent_workloads.classification.data import DATASET, prepare
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.workload import Workload

# For batches of 256, as in pytorch/examples.
LEARNING_RATE = 0.1


def run(config: ClassificationConfig, reporter: Reporter) -> None:
    """Train.

    Raises:
        MisuseError: the device, the precision, the batch size or the classes do not fit.
        DataError: the data cannot be used.
        NonFiniteError: the loss became NaN or infinite.
    """
    reporter.phase("prepare")
    # torch takes a second to import, which nobody should pay who only lists the workloads.
    from gpuagent_workloads.classification.resnet import resnet50
    from gpuagent_workloads.classification.train import train_classifier

    train_classifier(lambda: resnet50(config.classes), LEARNING_RATE, config, reporter)


WORKLOAD = Workload(
    name="resnet50",
    summary="Trains ResNet-50 on images of 224 pixels (23,917,832 parameters for 200 classes, SGD with momentum).",
    kind="training",
    study="S4: virtual machine and container in it compared",
    data="synthetic images made from the seed and kept on the device, or "
    "tiny-imagenet-200's folders (prepare resnet50 fetches 248 MB)",
    memory="on the device about 6 GB for batches of 64, twice that for 128; on the host 1 GB",
    config=ClassificationConfig,
    run=run,
    prepare=prepare,
    dataset=DATASET,
)
