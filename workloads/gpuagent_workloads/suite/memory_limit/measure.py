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
from gpuagent_workloads.suite.memory_limit import Config
from gpuagent_workloads.suite.memory_limit.search import (
    Layers,
    Ratio,
    largest_that_fits,
    parse_points,
    parse_ratios,
    plan_stages,
)
from gpuagent_workloads.suite.memory_limit.trial import Outcome, Shape, Stage, Trial, run_in_fresh_process
from gpuagent_workloads.training.device import gpu_uuid

# After one of warm-up, each trial of the search takes one more: only the second has everything in memory.
_SEARCH_STEPS = 1

# Puts a stack onto devices.
Place = Callable[[Layers], tuple[Stage, ...]]


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
    _report_settings(config, devices, reporter)
    search = Search(config, reporter)
    reporter.phase("measure")
    used, points = devices.names[: config.split], parse_points(config.points or "")
    is_planned = len(used) > 1 and not (points and all(len(stages) > 1 for stages in points))
    place = _plan(used, search) if is_planned else _on(used[0])
    for stages in points:
        search.report_stated(stages, _place(used, stages) if len(stages) > 1 else place(stages[0]))
    if not points:
        for ratio in parse_ratios(config.ratios):
            search.report_point(f"frontier_{ratio.name}", ratio, place)
    reporter.phase("teardown")
    reporter.result("trials", search.trials)


def _plan(gpus: Sequence[str], search: "Search") -> Place:
    """Find the stacks that each GPU holds alone, and return the division of others among them."""
    frontiers = [
        Layers(
            conv=search.report_point(f"gpu{index}_conv1_fc0", Ratio(conv=1, fc=0), _on(gpu)).count,
            fc=search.report_point(f"gpu{index}_conv0_fc1", Ratio(conv=0, fc=1), _on(gpu)).count,
        )
        for index, gpu in enumerate(gpus)
    ]
    return lambda layers: _place(gpus, plan_stages(layers, frontiers))


class Search:
    """The search for one point after the other."""

    def __init__(
        self, config: Config, reporter: Reporter, run_trial: Callable[[Trial], Outcome] = run_in_fresh_process
    ) -> None:
        self.trials = 0
        self._config = config
        self._shape = Shape(
            batch_size=config.batch_size, channels=config.channels, side=config.side, kernel=config.kernel
        )
        self._reporter = reporter
        self._run_trial = run_trial

    def report_point(self, name: str, ratio: Ratio, place: Place) -> Layers:
        """Find the largest stack in the direction of `ratio`, report it under `name` and return it.

        Raises:
            WorkloadError: not even one layer fits.
        """
        guess = self._guess(self._try(place(ratio.layers(1)), 1, _SEARCH_STEPS))
        count = largest_that_fits(lambda number: self._try(place(ratio.layers(number)), 1, _SEARCH_STEPS).fits, guess)
        while count:
            stages = place(ratio.layers(count))
            outcome = self._try(stages, self._config.warmup, self._config.steps)
            if outcome.fits:
                self._report(name, ratio.layers(count), stages, outcome)
                return ratio.layers(count)
            # More steps than in the search can need a little more: fragments, or another process on the GPU.
            count -= 1
        raise WorkloadError(f"not even one layer fits, {ratio.conv}:{ratio.fc}: give a smaller --batch-size or --side")

    def report_stated(self, layers: Sequence[Layers], stages: tuple[Stage, ...]) -> None:
        """Try a stack, and report whether it fits and the time of its step.

        Args:
            layers: the stack as it was given, in one part or one for each device.
            stages: its place.
        """
        name = "_".join(["point", *(f"conv{part.conv}_fc{part.fc}" for part in layers)])
        outcome = self._try(stages, self._config.warmup, self._config.steps)
        self._reporter.result(f"{name}_fits", int(outcome.fits))
        whole = Layers(conv=sum(part.conv for part in layers), fc=sum(part.fc for part in layers))
        self._report(name, whole, stages, outcome)

    def _guess(self, of_one: Outcome) -> int:
        """Return the number of activations in the allowed memory, a little more than the layers that fit.

        Args:
            of_one: the outcome of a trial with one layer, which has the free memory.
        """
        activation_bytes = self._shape.batch_size * self._shape.channels * self._shape.side**2 * 4
        limit_bytes = self._config.limit_bytes
        allowed = [free if limit_bytes is None else min(free, limit_bytes) for free in of_one.free_bytes]
        return sum(allowed) // activation_bytes

    def _try(self, stages: tuple[Stage, ...], warmup: int, steps: int) -> Outcome:
        limit_bytes = self._config.limit_bytes
        outcome = self._run_trial(
            Trial(stages=stages, shape=self._shape, warmup=warmup, steps=steps, limit_bytes=limit_bytes)
        )
        self._reporter.metric("trial_conv_layers", sum(stage.conv for stage in stages), step=self.trials)
        self._reporter.metric("trial_fc_layers", sum(stage.fc for stage in stages), step=self.trials)
        self._reporter.metric("trial_fits", int(outcome.fits), step=self.trials)
        # Between trials nothing is timed, and a search takes minutes.
        self._reporter.flush()
        self.trials += 1
        return outcome

    def _report(self, name: str, layers: Layers, stages: Sequence[Stage], outcome: Outcome) -> None:
        report = self._reporter.result
        report(f"{name}_conv_layers", layers.conv, unit="layers")
        report(f"{name}_fc_layers", layers.fc, unit="layers")
        if outcome.step_seconds is not None:
            report(f"{name}_step_seconds", outcome.step_seconds, unit="s")
        if len(stages) > 1:
            for index, stage in enumerate(stages):
                report(f"{name}_gpu{index}_conv_layers", stage.conv, unit="layers")
                report(f"{name}_gpu{index}_fc_layers", stage.fc, unit="layers")
            for index, seconds in enumerate(outcome.stage_seconds):
                report(f"{name}_gpu{index}_step_seconds", seconds, unit="s")
        for field in ("free_bytes", "peak_allocated_bytes", "peak_reserved_bytes"):
            for index, value in enumerate(getattr(outcome, field)):
                part = f"_gpu{index}" if len(stages) > 1 else ""
                report(f"{name}{part}_{field}", value, unit="bytes")


def _on(device: str) -> Place:
    return lambda layers: _place([device], [layers])


def _place(devices: Sequence[str], parts: Sequence[Layers]) -> tuple[Stage, ...]:
    return tuple(Stage(device=device, conv=p.conv, fc=p.fc) for device, p in zip(devices, parts, strict=True))


def _report_settings(config: Config, devices: Devices, reporter: Reporter) -> None:
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
    reporter.result("split", config.split)
    if config.limit_bytes is not None:
        reporter.result("limit_bytes", config.limit_bytes, unit="bytes")


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
