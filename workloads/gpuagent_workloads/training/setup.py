"""What happens before a model is built: seeds, threads, device, precision, and a record of what is installed."""

import os

import torch

from gpuagent_workloads.errors import MisuseError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import TrainingConfig
from gpuagent_workloads.training.device import choose_device, report_device
from gpuagent_workloads.training.precision import Precision


def set_up(config: TrainingConfig, reporter: Reporter) -> tuple[torch.device, Precision]:
    """Make torch ready, report what it runs on and with, and return the device and the precision.

    Raises:
        MisuseError: the device or the precision is not to be had, or torchrun started several ranks.
    """
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise MisuseError("this workload trains on one rank: start it without torchrun, or with one process")
    torch.manual_seed(config.seed)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    device = choose_device(config.device)
    precision = Precision(config.precision, device)
    report_device(device, reporter)
    precision.report(reporter)
    reporter.result("seed", config.seed)
    reporter.result("threads", torch.get_num_threads())
    _report_versions(reporter)
    return device, precision


def _report_versions(reporter: Reporter) -> None:
    reporter.result("torch_version", torch.__version__)
    if torch.version.cuda is not None:
        reporter.result("cuda_version", torch.version.cuda)
    cudnn_version = torch.backends.cudnn.version()
    if cudnn_version is not None:
        reporter.result("cudnn_version", str(cudnn_version))
