"""Starts a workload's ranks through torchrun's launcher, and says in one line what went wrong in them."""

import dataclasses
import logging
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_workloads.errors import Terminated, WorkloadError
from gpuagent_workloads.parameters import arguments_of
from gpuagent_workloads.training.config import TrainingConfig
from gpuagent_workloads.training.ranks import TIMEOUT

# How long nodes that have met wait for others, up to the greatest number. torchrun's default of 30 s would be most of
# what a recovery takes.
LAST_CALL_SECONDS = 5

_LOOPBACK = "127.0.0.1"


def launch(workload: str, config: TrainingConfig) -> None:
    """Run a workload in as many processes as `config` wants, to their end.

    Raises:
        MisuseError: there are fewer GPUs than ranks, checkpoints cannot be written, or a rank says that the user asked
            for something wrong.
        WorkloadError: a rank failed, or the nodes did not meet.
        KeyboardInterrupt: Ctrl-C ended it.
        Terminated: SIGTERM ended it.
    """
    _refuse_missing_gpus(config)
    with tempfile.TemporaryDirectory(prefix="gpuagent-ranks-") as folder, _quiet():
        if config.elastic:
            config = _ready_for_restarts(config, Path(folder))
        settings = LaunchConfig(
            nproc_per_node=config.ranks,
            logs_specs=DefaultLogsSpecs(log_dir=folder),
            rdzv_backend="c10d",
            **_nodes(workload, config),
        )
        try:
            elastic_launch(settings, sys.executable)(
                "-m", "gpuagent_workloads.rank", "run", workload, *arguments_of(config)
            )
        except ChildFailedError as error:
            raise _first_error(error) from error
        except SignalException as error:
            raise (KeyboardInterrupt if error.sigval == signal.SIGINT else Terminated) from error
        except RendezvousError as error:
            raise WorkloadError(
                f"the nodes cannot meet at {settings.rdzv_endpoint} ({type(error).__name__}): "
                "does the node that --rendezvous names still run, and can it be reached?"
            ) from error


def _nodes(workload: str, config: TrainingConfig) -> dict[str, Any]:
    """Return how many nodes there are and where they meet, as LaunchConfig wants it."""
    least, most = config.node_range
    endpoint = config.rendezvous or f"{_LOOPBACK}:0"
    is_local = endpoint.rpartition(":")[0] in (_LOOPBACK, "localhost")
    return {
        "min_nodes": least,
        "max_nodes": most,
        "max_restarts": config.max_restarts if config.elastic else 0,
        "rdzv_endpoint": endpoint,
        "rdzv_configs": {"last_call_timeout": LAST_CALL_SECONDS, **_patience(config)},
        "run_id": _meeting(workload, config),
        # By default a node's full name, which not every network resolves.
        "local_addr": _LOOPBACK if is_local else None,
    }


def _patience(config: TrainingConfig) -> dict[str, int]:
    """Return how long a node tries to reach the meeting point where all are awaited: others may start much later."""
    return {} if config.elastic else {"read_timeout": int(TIMEOUT.total_seconds())}


def _meeting(workload: str, config: TrainingConfig) -> str:
    """Return what is said to those who come to the same place: who does not say it stays outside."""
    if config.rendezvous is None:
        return uuid.uuid4().hex
    # Of a run of several nodes their agents tell the same identity, and another one for each repeat.
    run_id = os.environ.get("GPUAGENT_RUN_ID") if config.nodes > 1 else None
    return run_id or f"gpuagent-{workload}"


def _ready_for_restarts(config: TrainingConfig, folder: Path) -> TrainingConfig:
    """Return `config` with a place for checkpoints: the run directory or, where there is none, the folder.

    Raises:
        MisuseError: nothing can be written there. Ranks would find that out late, and be restarted for it.
    """
    home = os.environ.get("GPUAGENT_RUN_DIR") or folder
    directory = Path(config.checkpoint or Path(home, "checkpoint"))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        raise MisuseError(f"--checkpoint {directory} cannot be written to: {error.strerror}") from error
    # The store that the launcher shares with the ranks survives them (torch 2.13), and new ones would look for one
    # another where the old ones were.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    return dataclasses.replace(config, checkpoint=str(directory))


def _refuse_missing_gpus(config: TrainingConfig) -> None:
    if config.device == "cpu" or not torch.cuda.is_available():
        return
    gpus = torch.cuda.device_count()
    if config.ranks > gpus:
        raise MisuseError(f"--ranks {config.ranks} is more than the {gpus} GPUs that torch finds")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what torch's launcher says of its children off the screen."""
    if os.environ.get("GPUAGENT_DEBUG") == "1":
        yield
        return
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _first_error(error: ChildFailedError) -> GpuAgentError:
    """Return what the rank said that failed first; the others mostly fail because it did."""
    rank, failure = min(error.failures.items(), key=lambda item: _order_of_blame(item[1]))
    if failure.exitcode < 0:
        killed = failure.exitcode == -signal.SIGKILL
        hint = "was it killed, perhaps for want of memory?" if killed else "GPUAGENT_DEBUG=1 shows more"
        return WorkloadError(f"rank {rank} was ended by {failure.signal_name()}: {hint}")
    if "unix_nano" not in failure.error_file_data:
        return WorkloadError(f"rank {rank} ended with exit code {failure.exitcode}")
    if failure.exitcode == 2:
        # All ranks were asked for the same.
        return MisuseError(failure.message)
    return WorkloadError(f"rank {rank}: {failure.message}")


def _order_of_blame(failure: ProcessFailure) -> tuple[bool, bool, int]:
    """Sort ranks that something killed first, then those that complained, by when, then those that were stopped."""
    was_stopped = failure.exitcode == -signal.SIGTERM
    return was_stopped, failure.exitcode >= 0, failure.error_file_data.get("unix_nano", 0)
