"""The search for the points of the frontier, with the time of a step at each."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import torch

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.measuring.setup import set_up_device
from gpuagent_workloads.report import Reporter, Result
from gpuagent_workloads.suite.memory_limit import Config, Layers
from gpuagent_workloads.suite.memory_limit.trial import Outcome, Shape, Stage, Trial, run_in_fresh_process
from gpuagent_workloads.training.device import gpu_uuid

# After one of warm-up, each trial of the search takes one more: only the second has everything in memory.
_SEARCH_STEPS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """The devices of the search."""

    # As torch names them: `cpu`, or every GPU that torch finds.
    names: Sequence[str]
    # Of the GPUs, as `nvidia-smi -L` prints them; empty on a CPU, and where torch lacks them.
    uuids: Sequence[str]
    # The results to report about device and software.
    facts: Sequence[Result]


def find_frontier(config: Config, reporter: Reporter) -> None:
    """Run the workload from its devices to the last point.

    Raises:
        MisuseError: the device, the GPUs or the limit are not available.
        WorkloadError: not even one layer fits, or a trial failed for another reason than memory.
    """
    devices = look(config.device)
    if devices.names == ["cpu"] and config.limit_bytes is None:
        raise MisuseError("give --limit-bytes: without it the stack could take all of the host's memory")
    if config.split > len(devices.names):
        raise MisuseError(f"--split {config.split} is more than the {len(devices.uuids)} GPUs that torch finds")
    for fact in devices.facts:
        reporter.result(fact.name, fact.value, unit=fact.unit)
    for uuid in devices.uuids[: config.split]:
        reporter.device(uuid)
    shape = (config.batch_size, config.channels, config.side, config.side)
    reporter.result("input_shape", str(shape))
    conv = f"Conv2d({config.channels}, {config.channels}, {config.kernel}, padding {config.kernel // 2})"
    fc = f"Linear({config.side}, {config.side})"
    reporter.result(
        "layers", f"{conv}, then {fc} on the last axis: an assumption, as the study does not give its layers"
    )
    parameters = config.channels * (config.channels * config.kernel**2 + 1), config.side * (config.side + 1)
    for name, layer, count in zip(("conv_layer", "fc_layer"), (conv, fc), parameters, strict=True):
        reporter.result(name, f"{layer}: {shape} to {shape}, {count:,} parameters")
    reporter.result("mode", "training without optimizer: forward and backward, all activations kept")
    if config.limit_bytes is not None:
        reporter.result("limit_bytes", config.limit_bytes, unit="bytes")
    search = Search(config, devices.names, reporter)
    reporter.phase("measure")
    for stack in config.stacks:
        search.report_stated(stack)
    if not config.stacks:
        for (ratio,) in config.directions:
            search.report_point(ratio)
    reporter.phase("teardown")
    reporter.result("trials", search.trials)


class Search:
    """The search for one point after the other."""

    def __init__(
        self,
        config: Config,
        devices: Sequence[str],
        reporter: Reporter,
        run_trial: Callable[[Trial], Outcome] = run_in_fresh_process,
    ) -> None:
        self.trials = 0
        self._config, self._devices, self._reporter = config, devices, reporter
        self._shape = Shape(
            batch_size=config.batch_size, channels=config.channels, side=config.side, kernel=config.kernel
        )
        self._run_trial = run_trial

    def report_point(self, ratio: Layers) -> Layers:
        """Find the largest stack in the direction of `ratio`, report it and return it.

        Raises WorkloadError: not even one layer fits.
        """
        # The number of activations in the allowed memory, a little more than the layers that fit.
        activation_bytes = self._shape.batch_size * self._shape.channels * self._shape.side**2 * 4
        limit_bytes = self._config.limit_bytes
        of_one = self._try([ratio.scaled(1)], 1, _SEARCH_STEPS)
        allowed = [free if limit_bytes is None else min(free, limit_bytes) for free in of_one.free_bytes]
        guess = sum(allowed) // activation_bytes
        count = largest_that_fits(lambda number: self._try([ratio.scaled(number)], 1, _SEARCH_STEPS).fits, guess)
        while count:
            layers = ratio.scaled(count)
            outcome = self._try([layers], self._config.warmup, self._config.steps)
            if outcome.fits:
                self._report(f"frontier_{ratio.name}", [layers], outcome)
                return layers
            # More steps than in the search can need a little more: fragments, or another process on the GPU.
            count -= 1
        raise WorkloadError(f"not even one layer fits, {ratio.conv}:{ratio.fc}: give a smaller --batch-size or --side")

    def report_stated(self, parts: Sequence[Layers]) -> None:
        """Try a stack, in one part or one for each device, and report whether it fits and the time of its step."""
        name = "_".join(["point", *(part.name for part in parts)])
        outcome = self._try(parts, self._config.warmup, self._config.steps)
        self._reporter.result(f"{name}_fits", int(outcome.fits))
        self._report(name, parts, outcome)

    def _try(self, parts: Sequence[Layers], warmup: int, steps: int) -> Outcome:
        stages = tuple(
            Stage(device=device, conv=part.conv, fc=part.fc) for device, part in zip(self._devices, parts, strict=False)
        )
        limit_bytes = self._config.limit_bytes
        outcome = self._run_trial(
            Trial(stages=stages, shape=self._shape, warmup=warmup, steps=steps, limit_bytes=limit_bytes)
        )
        self._reporter.metric("trial_conv_layers", sum(part.conv for part in parts), step=self.trials)
        self._reporter.metric("trial_fc_layers", sum(part.fc for part in parts), step=self.trials)
        self._reporter.metric("trial_fits", int(outcome.fits), step=self.trials)
        # Between trials nothing is timed, and a search takes minutes.
        self._reporter.flush()
        self.trials += 1
        return outcome

    def _report(self, name: str, parts: Sequence[Layers], outcome: Outcome) -> None:
        report = self._reporter.result
        report(f"{name}_conv_layers", sum(part.conv for part in parts), unit="layers")
        report(f"{name}_fc_layers", sum(part.fc for part in parts), unit="layers")
        if outcome.step_seconds is not None:
            report(f"{name}_step_seconds", outcome.step_seconds, unit="s")
        if len(parts) > 1:
            for index, part in enumerate(parts):
                report(f"{name}_gpu{index}_conv_layers", part.conv, unit="layers")
                report(f"{name}_gpu{index}_fc_layers", part.fc, unit="layers")
            for index, seconds in enumerate(outcome.stage_seconds):
                report(f"{name}_gpu{index}_step_seconds", seconds, unit="s")
        for field in ("free_bytes", "peak_allocated_bytes", "peak_reserved_bytes"):
            for index, value in enumerate(getattr(outcome, field)):
                gpu = f"_gpu{index}" if len(parts) > 1 else ""
                report(f"{name}{gpu}_{field}", value, unit="bytes")


def largest_that_fits(fits: Callable[[int], bool], guess: int) -> int:
    """Return the largest count that fits, 0 if not even 1 does.

    It steps away from the guess, twice as far each time, until it has one count that fits and one that does not; then
    it bisects. A good guess therefore saves most of the trials.

    Args:
        fits: returns whether that many fit; whenever a count fits, all smaller ones are assumed to fit.
        guess: the first count.
    """
    fitting = failing = guess = max(guess, 1)
    stride = max(guess // 16, 1)
    if fits(guess):
        while fits(failing := fitting + stride):
            fitting = failing
            stride *= 2
    else:
        while (fitting := max(failing - stride, 0)) and not fits(fitting):
            failing = fitting
            stride *= 2
    while failing - fitting > 1:
        middle = (fitting + failing) // 2
        if fits(middle):
            fitting = middle
        else:
            failing = middle
    return fitting


def look(wanted: str) -> Devices:
    """Return the devices for `wanted`: auto, cpu or cuda, from a process of its own.

    The CUDA context that it takes would be missing from the memory that the search is about.

    Raises:
        MisuseError: there is no such device.
        WorkloadError: this torch was not built for the GPU.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_look, wanted).result()


def _look(wanted: str) -> Devices:
    reporter = Reporter(None)
    device = set_up_device(wanted, reporter)
    indices = range(torch.cuda.device_count()) if device.type == "cuda" else ()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    uuids = [gpu_uuid(torch.cuda.get_device_properties(index), visible) for index in indices]
    return Devices(
        names=[f"cuda:{index}" for index in indices] or [str(device)],
        uuids=[uuid for uuid in uuids if uuid is not None],
        facts=reporter.results,
    )
