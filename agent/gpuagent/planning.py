"""Turns what was asked for into runs that can be executed, or refuses it before anything starts."""

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuagent.catalogue import Catalogue, ParameterValue
from gpuagent.environments import Environment, find_environment
from gpuagent.errors import GpuAgentError, MisuseError
from gpuagent_proto.v1.run_pb2 import RunSpec

MAX_REPEATS = 10_000
MAX_TIMEOUT_SECONDS = 365 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interference:
    """A workload that runs beside the measured one."""

    name: str
    program: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One run, ready to be executed."""

    run_id: str
    experiment: str
    workload: str
    program: tuple[str, ...]
    parameters: Mapping[str, ParameterValue]
    environment: Environment
    image: str | None
    interference: tuple[Interference, ...]
    repeat: int
    labels: Mapping[str, str]
    timeout_seconds: float | None
    working_directory: Path | None
    required_results: tuple[str, ...]
    """What a built-in workload has to report; without it the run has failed."""


class Planner:
    """Knows what this agent may run, and how."""

    def __init__(self, catalogue: Catalogue, *, allow_commands: bool) -> None:
        self._catalogue = catalogue
        self.allow_commands = allow_commands

    def plan(self, spec: RunSpec, *, from_owner: bool = True) -> list[PlannedRun]:
        """Return the runs that `spec` asks for.

        Args:
            spec: what was asked for.
            from_owner: whether the agent's own user asks. Others may run commands only with --allow-commands.

        Raises:
            MisuseError: the spec makes no sense.
            GpuAgentError: it is not allowed, or the workloads cannot be asked.
        """
        _check(spec)
        if spec.command and not (from_owner or self.allow_commands):
            raise GpuAgentError("this agent runs only built-in workloads; its owner can start it with --allow-commands")
        experiment = spec.experiment or f"{_name(spec)}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
        return [self._plan_one(spec, experiment, repeat) for repeat in _repeats(spec)]

    def _plan_one(self, spec: RunSpec, experiment: str, repeat: int) -> PlannedRun:
        program, parameters, required = self._program(spec)
        name = _name(spec)
        return PlannedRun(
            run_id=f"{name}-{secrets.token_hex(5)}",
            experiment=experiment,
            workload=name,
            program=program,
            parameters=parameters,
            environment=find_environment(spec.environment),
            image=spec.image or None,
            interference=tuple(self._interference(beside) for beside in spec.interference),
            repeat=repeat,
            labels=dict(spec.labels),
            timeout_seconds=spec.timeout_seconds or None,
            working_directory=Path(spec.working_directory) if spec.working_directory else None,
            required_results=required,
        )

    def _program(self, spec: RunSpec) -> tuple[tuple[str, ...], Mapping[str, ParameterValue], tuple[str, ...]]:
        if spec.command:
            return tuple(spec.command), {}, ()
        workload = self._catalogue.find(spec.workload)
        parameters = workload.complete(spec.parameters)
        required = ("throughput",) if workload.kind == "training" else ()
        return tuple(self._catalogue.program(workload, spec.parameters)), parameters, required

    def _interference(self, name: str) -> Interference:
        workload = self._catalogue.find(name)
        if workload.kind != "interference":
            known = [other.name for other in self._catalogue.workloads().values() if other.kind == "interference"]
            raise MisuseError(f"{name!r} is not made to run beside others; --with takes: {', '.join(known)}")
        return Interference(name=name, program=tuple(self._catalogue.program(workload, {})))


def _check(spec: RunSpec) -> None:
    if bool(spec.workload) == bool(spec.command):
        raise MisuseError("give either a workload or a command")
    if spec.command and spec.parameters:
        raise MisuseError("a command takes its own arguments; --param is for built-in workloads")
    if spec.command and not spec.command[0]:
        raise MisuseError("the command is empty")
    if spec.repeats > MAX_REPEATS:
        raise MisuseError(f"at most {MAX_REPEATS} repeats at once, not {spec.repeats}")
    if not 0 <= spec.timeout_seconds <= MAX_TIMEOUT_SECONDS:
        raise MisuseError(f"the timeout must be 0 to {MAX_TIMEOUT_SECONDS:.0f} s, not {spec.timeout_seconds}")
    if len(set(spec.interference)) < len(spec.interference):
        raise MisuseError("a workload can run beside another only once")
    if any("\0" in word for word in spec.command):
        raise MisuseError("a program's argument cannot hold a NUL character")


def _repeats(spec: RunSpec) -> range:
    first = spec.first_repeat or 1
    return range(first, first + (spec.repeats or 1))


def _name(spec: RunSpec) -> str:
    """Return the workload's name, or that of the command's program in letters, digits, '.', '_' and '-'."""
    if spec.workload:
        return spec.workload
    name = Path(spec.command[0]).name
    return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)[:64] or "command"
