"""What happens before a model is built: seeds, threads, device, ranks, precision, and a record of what is installed."""

import torch

from gpuagent_workloads.errors import MisuseError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import TrainingConfig
from gpuagent_workloads.training.device import choose_device, report_device
from gpuagent_workloads.training.precision import Precision
from gpuagent_workloads.training.ranks import Ranks


def set_up(config: TrainingConfig, reporter: Reporter) -> tuple[torch.device, Precision, Ranks]:
    """Make torch ready, meet the other ranks, report what this one runs on and with.

    Torch's random numbers, as of dropout and noise, differ between ranks.

    Returns:
        The device, the precision, and the ranks that train together; all must go on to `train`, which parts them.

    Raises:
        MisuseError: the device or the precision is not to be had, or --ranks contradicts what torchrun says.
        WorkloadError: the ranks did not meet.
    """
    ranks = Ranks.from_environment()
    _refuse_contradiction(config, ranks)
    torch.manual_seed(config.seed + ranks.rank)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    elif ranks.local_size > 1:
        # Ranks that each take all cores get into one another's way.
        torch.set_num_threads(max(1, torch.get_num_threads() // ranks.local_size))
    device = choose_device(config.device)
    precision = Precision(config.precision, device)
    ranks.join(device)
    report_device(device, reporter)
    precision.report(reporter)
    reporter.result("ranks", ranks.size)
    reporter.result("seed", config.seed)
    report_software(reporter)
    return device, precision, ranks


def report_software(reporter: Reporter) -> None:
    """Report the versions of torch and what it was built for, and how many threads it uses."""
    reporter.result("threads", torch.get_num_threads())
    reporter.result("torch_version", torch.__version__)
    if torch.version.cuda is not None:
        reporter.result("cuda_version", torch.version.cuda)
    cudnn_version = torch.backends.cudnn.version()
    if cudnn_version is not None:
        reporter.result("cudnn_version", str(cudnn_version))


def _refuse_contradiction(config: TrainingConfig, ranks: Ranks) -> None:
    started = ranks.local_size if config.elastic or config.nodes > 1 else ranks.size
    if config.ranks not in (1, started):
        raise MisuseError(f"--ranks {config.ranks} contradicts torchrun, which started {started}: leave it out")
