"""Trains AlexNet on images of 224 pixels.

    python -m gpuagent_workloads run alexnet --batches 15 --precision bf16 --channels-last

With the images of tiny-imagenet-200 instead of synthetic ones:

    gpuagent prepare alexnet --data ~/tiny-imagenet-200
    python -m gpuagent_workloads run alexnet --data ~/tiny-imagenet-200 --batches 15
"""

from gpuagent_workloads.classification.config import ClassificationConfig
from gpuagent_workloads.classification.data import DATASET, prepare
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.workload import Workload

# For batches of 256, as in pytorch/examples.
LEARNING_RATE = 0.01


def run(config: ClassificationConfig, reporter: Reporter) -> None:
    """Train.

    Raises:
        MisuseError: the device, the precision, the batch size or the classes do not fit.
        DataError: the data cannot be used.
        NonFiniteError: the loss became NaN or infinite.
    """
    reporter.phase("prepare")
    # torch takes a second to import, which nobody should pay who only lists the workloads.
    from gpuagent_workloads.classification.alexnet import alexnet
    from gpuagent_workloads.classification.train import train_classifier

    train_classifier(lambda: alexnet(config.classes), LEARNING_RATE, config, reporter)


WORKLOAD = Workload(
    name="alexnet",
    summary="Trains AlexNet on images of 224 pixels (57,823,240 parameters for 200 classes, SGD with momentum).",
    kind="training",
    study="S4: virtual machine and container in it compared",
    data="synthetic images made from the seed and kept on the device, or "
    "tiny-imagenet-200's folders (prepare alexnet fetches 248 MB)",
    memory="on the device about 1.5 GB for batches of 64; on the host 1.5 GB",
    config=ClassificationConfig,
    run=run,
    prepare=prepare,
    dataset=DATASET,
)
