"""Start of a workload's ranks through torchrun's launcher, which reports their errors in one line."""

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

import torch
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.own_module import module_command
from gpuagent_common.unexpected import DEBUG, is_debugging
from gpuagent_workloads.errors import Terminated, WorkloadError
from gpuagent_workloads.training.config import TrainingConfig
from gpuagent_workloads.training.ranks import TIMEOUT
from gpuagent_workloads.workload import arguments_of

# How long nodes that have met wait for others, up to the greatest number. torchrun's default of 30 s would be most of
# the time of a recovery.
LAST_CALL_SECONDS = 5

_LOOPBACK = "127.0.0.1"


def launch(workload: str, config: TrainingConfig) -> None:
    """Run a workload in as many processes as `config` asks for, to their end.

    Raises:
        MisuseError: there are fewer GPUs than ranks, checkpoints cannot be written, or a rank reports misuse.
        WorkloadError: a rank failed, or the nodes did not meet.
        KeyboardInterrupt: Ctrl-C ended it.
        Terminated: SIGTERM ended it.
    """
    if config.device != "cpu" and torch.cuda.is_available() and config.ranks > torch.cuda.device_count():
        raise MisuseError(f"--ranks {config.ranks} is more than the {torch.cuda.device_count()} GPUs that torch finds")
    with tempfile.TemporaryDirectory(prefix="gpuagent-ranks-") as folder, _quiet():
        if config.elastic:
            # By default checkpoints are in the run directory or, without one, in the temporary folder.
            home = os.environ.get("GPUAGENT_RUN_DIR") or folder
            directory = Path(config.checkpoint or Path(home, "checkpoint"))
            try:
                directory.mkdir(parents=True, exist_ok=True)
                tempfile.TemporaryFile(dir=directory).close()
            except OSError as error:
                raise MisuseError(f"--checkpoint {directory} cannot be written to: {error.strerror}") from error
            # The store that the launcher shares with the ranks survives them (torch 2.13), and new ranks would look
            # for one another at the addresses of the old ones.
            os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
            config = dataclasses.replace(config, checkpoint=str(directory))
        settings = _settings(workload, config, folder)
        try:
            python, *words = module_command(sys.executable, "gpuagent_workloads.rank")
            elastic_launch(settings, python)(*words, "run", workload, *arguments_of(config))
        except ChildFailedError as error:
            raise _first_error(error) from error
        except SignalException as error:
            raise (KeyboardInterrupt if error.sigval == signal.SIGINT else Terminated) from error
        except RendezvousError as error:
            raise WorkloadError(
                f"the nodes cannot meet at {settings.rdzv_endpoint} ({type(error).__name__}): "
                "check that the node of --rendezvous runs and can be reached"
            ) from error


def _settings(workload: str, config: TrainingConfig, folder: str) -> LaunchConfig:
    least, most = config.node_range
    endpoint = config.rendezvous or f"{_LOOPBACK}:0"
    # Who meets at one place without the same identity is rejected. The agents of a run of several nodes give all of
    # them the same one, and another one for each repeat.
    run_id = os.environ.get("GPUAGENT_RUN_ID") if config.nodes > 1 else None
    # Where all nodes are awaited, each tries for long to reach the meeting point: others may start much later.
    patience = {} if config.elastic else {"read_timeout": int(TIMEOUT.total_seconds())}
    return LaunchConfig(
        nproc_per_node=config.ranks,
        logs_specs=DefaultLogsSpecs(log_dir=folder),
        rdzv_backend="c10d",
        min_nodes=least,
        max_nodes=most,
        max_restarts=config.max_restarts if config.elastic else 0,
        rdzv_endpoint=endpoint,
        rdzv_configs={"last_call_timeout": LAST_CALL_SECONDS, **patience},
        run_id=(run_id or f"gpuagent-{workload}") if config.rendezvous else uuid.uuid4().hex,
        # By default a node's full name, which not every network resolves.
        local_addr=_LOOPBACK if endpoint.rpartition(":")[0] in (_LOOPBACK, "localhost") else None,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    if not is_debugging():
        logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _first_error(error: ChildFailedError) -> GpuAgentError:
    """Return the error of the rank that failed first; the others mostly fail because of it."""
    rank, failure = min(error.failures.items(), key=lambda item: _order_of_blame(item[1]))
    if failure.exitcode < 0:
        killed = failure.exitcode == -signal.SIGKILL
        hint = "perhaps memory ran out" if killed else f"{DEBUG}=1 shows more"
        return WorkloadError(f"rank {rank} was ended by {failure.signal_name()}: {hint}")
    if "unix_nano" not in failure.error_file_data:
        return WorkloadError(f"rank {rank} ended with exit code {failure.exitcode}")
    if failure.exitcode == 2:
        # All ranks have the same parameters.
        return MisuseError(failure.message)
    return WorkloadError(f"rank {rank}: {failure.message}")


def _order_of_blame(failure: ProcessFailure) -> tuple[bool, bool, int]:
    """Sort killed ranks first, then those that reported an error, by time, then those that were stopped."""
    was_stopped = failure.exitcode == -signal.SIGTERM
    return was_stopped, failure.exitcode >= 0, failure.error_file_data.get("unix_nano", 0)
