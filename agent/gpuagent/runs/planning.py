"""Planning: a request becomes runs that can be executed, or is refused before anything starts."""

import contextlib
import json
import math
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuagent.environments import find_environment
from gpuagent.environments.environment import Elsewhere, Environment, EnvironmentUnavailableError, Home, Image, Job
from gpuagent.runs.catalogue import Catalogue, ParameterValue, Workload
from gpuagent.runs.observing import observed
from gpuagent.runs.patterns import Pattern, find_patterns
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.keys import invited_run, make_invitation
from gpuagent_common.limits import MAX_LABELS, MAX_NAME_CHARACTERS, Limits, read_limits
from gpuagent_common.program_name import check_program_name, name_program
from gpuagent_proto.v1.run_pb2 import RunSpec

# The parameters of a workload for its number of nodes, and the place where their ranks meet.
_NODES, _RENDEZVOUS = "nodes", "rendezvous"

# What anyone who may launch can ask for. All else reaches a program, a path or an option: images contain programs, and
# Python would import from a folder.
_FOR_ALL = frozenset(
    (
        *("workload", "parameters", "interference", "environment", "repeats", "first_repeat", "labels", "experiment"),
        *("timeout_seconds", "cpus", "memory_bytes", "cpu_changes", "nodes", "job"),
    )
)
_IN_WORDS = {
    "command": "commands",
    "image": "images",
    "working_directory": "a working directory",
    "input": "standard input",
}

# Parameters that are for the owner alone: a server's command, the address that gets the agent's own key, and the one
# from which torch's launcher loads a pickle, that is any program.
_FOR_OWNERS = frozenset({"serve", "url", "rendezvous"})

# The fields of a plan that an agent elsewhere gets as they are.
CARRIED = (
    *("run_id", "experiment", "workload", "program", "parameters", "repeat", "required_results"),
    *("invitation", "interference"),
)

MAX_REPEATS = 10_000
MAX_TIMEOUT_SECONDS = 365 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One run, ready to be executed: what was asked for, and what is made of it here."""

    # Not shown: it has the secret that the nodes of a run share.
    asked: RunSpec = field(repr=False)
    run_id: str
    experiment: str
    workload: str
    program: Sequence[str]
    parameters: Mapping[str, ParameterValue]
    environment: Environment
    image: Image | None
    # Files of the node that its parameters name.
    data: tuple[Path, ...]
    # The programs of the workloads beside it, by name.
    interference: Mapping[str, Sequence[str]]
    repeat: int
    # Results that a built-in workload has to report for the run to succeed.
    required_results: Sequence[str]
    # Where it measures and records itself; None: this agent does.
    elsewhere: Elsewhere | None = None
    # Environment variables of its processes: the caller's. They are never stored, nor shown.
    variables: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    # With several nodes: the proof that this one may join the run of that identity.
    invitation: str | None = None

    @property
    def nodes(self) -> int:
        """The number of nodes, each with an agent that runs its part."""
        return self.asked.nodes or 1

    @property
    def limits(self) -> Limits:
        """The limits of its resources."""
        return read_limits(self.asked)

    @property
    def working_directory(self) -> Path | None:
        """The folder in which its program starts; None: anywhere."""
        return Path(self.asked.working_directory) if self.asked.working_directory else None

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """The patterns of the lines in which a command prints its steps; built-in workloads report theirs."""
        return find_patterns(self.asked.pattern) if self.asked.command else ()

    @property
    def input(self) -> Path | None:
        """The file that a command gets as standard input; None: it gets none."""
        return Path(self.asked.input) if self.asked.input else None

    def job(self, directory: Path) -> Job:
        """Return the job to contain, with its run directory. Raises GpuAgentError where it cannot be observed."""
        job = self._contained(directory)
        return observed(job) if self.asked.observe and not self.elsewhere else job

    def _contained(self, directory: Path) -> Job:
        variables = self.variables
        if self.patterns:
            # Lines that wait in a buffer have no time.
            variables = {"PYTHONUNBUFFERED": "1", **variables}
        if self.asked.items_per_step:
            variables = {**variables, "GPUAGENT_ITEMS_PER_STEP": f"{self.asked.items_per_step:g}"}
        return Job(
            run_id=self.run_id,
            program=self.program,
            image=self.image,
            run_directory=directory,
            working_directory=self.working_directory,
            data=self.data,
            limits=self.limits,
            options=tuple(self.asked.options),
            elsewhere=self.elsewhere and replace(self.elsewhere, plan=self._as_json()),
            nodes=self.nodes if self.elsewhere else 1,
            variables=variables,
        )

    def probe(self) -> Job:
        """Return the job for questions about its environment, without a run directory; nothing is written."""
        return self._contained(Path("/"))

    def _as_json(self) -> dict[str, object]:
        """Return the fields that an agent elsewhere needs to make this run."""
        from google.protobuf.json_format import MessageToDict

        asked = MessageToDict(self.asked, preserving_proto_field_name=True)
        for name in ("job", "options", "working_directory", "cpu_changes"):  # who asked sees to these
            asked.pop(name, None)
        return {
            **{name: getattr(self, name) for name in CARRIED},
            "asked": asked,
            "image": self.image.name if self.image else None,
        }

    def job_beside(self, name: str, directory: Path) -> Job:
        """Return an interference job in the same image, with a run directory of its own and no limits."""
        return Job(
            run_id=f"{self.run_id}-with-{name}",
            program=self.interference[name],
            image=self.image,
            run_directory=directory,
            working_directory=None,
            data=(),
            variables=self.variables,
        )


class Planner:
    """A planner of the runs that this agent may execute."""

    def __init__(self, catalogue: Catalogue, *, allow_commands: bool, home: Home | None = None) -> None:
        """`home` None: only to check requests, for which nothing looks where they would be made."""
        self._catalogue = catalogue
        self.allow_commands = allow_commands
        self._home = home

    def plan(
        self, spec: RunSpec, *, from_owner: bool = True, variables: Mapping[str, str] | None = None
    ) -> list[PlannedRun]:
        """Return the runs that `spec` asks for.

        Args:
            from_owner: whether the agent's own user asks. With --allow-commands others may ask for as much, else only
                for what can start no program of theirs.
            variables: the caller's environment variables; None: the agent's own.

        Raises:
            MisuseError: the spec is invalid.
            EnvironmentUnavailableError: this node lacks the environment.
            ImageUnavailableError: this node lacks the image.
            GpuAgentError: it is not allowed, or the workloads cannot be listed.
        """
        _check(spec)
        if not (from_owner or self.allow_commands):
            _check_harmless(spec)
        experiment = spec.experiment or f"{_name(spec)}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
        first = self._plan_one(spec, experiment, os.environ if variables is None else variables)
        first_repeat = spec.first_repeat or 1
        repeats = range(first_repeat, first_repeat + (spec.repeats or 1))
        return [_as_repeat(first, spec, repeat) for repeat in repeats]

    def _plan_one(self, spec: RunSpec, experiment: str, variables: Mapping[str, str]) -> PlannedRun:
        environment = find_environment(spec.environment)
        if spec.nodes > 1 and not spec.job and not environment.may_be_elsewhere:
            raise _missing_job()
        with _as_refusal(environment):
            environment.check()
        workload = self._catalogue.find(spec.workload) if spec.workload else None
        given = _with_nodes(spec, workload) if workload else {}
        parameters = workload.complete(given) if workload else {}
        limits = read_limits(spec)
        if not environment.may_be_elsewhere:
            _check_cpus(limits)
        with _as_refusal(environment):
            environment.check_limits(limits)
        _check_steps(spec)
        _check_input(spec, environment)
        planned = PlannedRun(
            asked=spec,
            run_id=_run_id(spec),
            experiment=experiment,
            workload=_name(spec),
            program=self._catalogue.program(workload, given, environment.python) if workload else list(spec.command),
            parameters=parameters,
            environment=environment,
            image=environment.find_image(spec.image or None),
            data=_data(workload, parameters) if workload else (),
            interference={beside: self._interference(beside, environment) for beside in spec.interference},
            repeat=spec.first_repeat,
            required_results=["throughput"] if workload and workload.kind == "training" else [],
            variables=variables,
        )
        elsewhere = environment.find_elsewhere(planned.probe(), self._home) if self._home else None
        if self._home and elsewhere is None:
            _check_cpus(limits)
        if planned.nodes > 1 and not spec.job:
            if self._home and elsewhere is None:
                raise _missing_job()
            # One command starts all of its nodes.
            spec.job = secrets.token_hex(16)
        return replace(planned, elsewhere=elsewhere)

    def _interference(self, name: str, environment: Environment) -> Sequence[str]:
        workload = self._catalogue.find(name)
        if workload.kind != "interference":
            known = [other.name for other in self._catalogue.workloads().values() if other.kind == "interference"]
            raise MisuseError(f"{name!r} is not an interference workload; --with takes: {', '.join(known)}")
        return self._catalogue.program(workload, {}, environment.python)


def _check_harmless(spec: RunSpec) -> None:
    """Check that a request of another user than the owner can start no program of that user's.

    Raises:
        GpuAgentError: it could.
    """
    given = [_IN_WORDS.get(field.name, field.name) for field, _ in spec.ListFields() if field.name not in _FOR_ALL]
    given += [f"the parameter {name}" for name in sorted(_FOR_OWNERS) if name in spec.parameters]
    if given:
        raise GpuAgentError(
            f"this agent does not accept {given[0]}, which can start any program; "
            "its owner can start it with --allow-commands"
        )


def _check(spec: RunSpec) -> None:
    if bool(spec.workload) == bool(spec.command):
        raise MisuseError("give either a workload or a command")
    if spec.command:
        _check_command(spec)
    elif spec.name:
        raise MisuseError("--name is for programs of your own; a built-in workload has its name")
    if spec.repeats > MAX_REPEATS:
        raise MisuseError(f"at most {MAX_REPEATS} repeats at once, not {spec.repeats}")
    if not 0 <= spec.timeout_seconds <= MAX_TIMEOUT_SECONDS:
        raise MisuseError(f"the timeout must be 0 to {MAX_TIMEOUT_SECONDS:.0f} s, not {spec.timeout_seconds}")
    if len(set(spec.interference)) < len(spec.interference):
        raise MisuseError("a workload can run beside another only once")
    texts = (*spec.command, *spec.parameters.values(), spec.image, spec.working_directory, spec.experiment, spec.job)
    texts += (spec.input,)
    if any("\0" in text for text in (*texts, *spec.labels, *spec.labels.values())):
        raise MisuseError("a run cannot contain a NUL character")
    names = (spec.experiment, spec.job, *spec.labels, *spec.labels.values(), *spec.parameters)
    names += (spec.workload, spec.environment, *spec.interference)
    if len(spec.labels) > MAX_LABELS or any(
        len(name) > MAX_NAME_CHARACTERS or not name.isprintable() for name in names
    ):
        raise MisuseError(
            f"a run has up to {MAX_LABELS} labels, and names of up to {MAX_NAME_CHARACTERS:,} printable characters"
        )


def _missing_job() -> MisuseError:
    return MisuseError(
        "--nodes needs --job NAME, the same on all nodes and in no other run, such as "
        "--job $(openssl rand -hex 16); in a step of Slurm it is found"
    )


def _check_command(spec: RunSpec) -> None:
    if spec.parameters:
        raise MisuseError("a command takes its own arguments; --param is for built-in workloads")
    if not spec.command[0]:
        raise MisuseError("the command is empty")
    if spec.name:
        check_program_name(spec.name)


def _check_steps(spec: RunSpec) -> None:
    """Check the options for the steps of a command.

    Raises:
        MisuseError: a workload is given them, or one of them is invalid.
    """
    if not 0 <= spec.items_per_step < math.inf:
        raise MisuseError(f"--items-per-step must be a number above 0, not {spec.items_per_step}")
    if spec.command:
        find_patterns(spec.pattern)
    elif spec.observe or spec.pattern or spec.items_per_step:
        raise MisuseError("--observe, --pattern and --items-per-step are for commands; built-in workloads report steps")


def _check_input(spec: RunSpec, environment: Environment) -> None:
    if not spec.input:
        return
    if not (spec.command and environment.passes_input):
        wanted = "commands, bare or in apptainer or charliecloud"
        raise MisuseError(f"standard input is for {wanted}; not {spec.workload or environment.name}")
    if not Path(spec.input).is_file():
        raise MisuseError(f"there is no file {spec.input} to give as standard input")


def _check_cpus(limits: Limits) -> None:
    there, most = os.cpu_count() or math.inf, max(limits.cpus or 0, *(change.cpus for change in limits.changes), 0)
    if most > there:
        raise MisuseError(f"cpus={most:g} is too many: this node has {there} CPUs")


def _with_nodes(spec: RunSpec, workload: Workload) -> Mapping[str, str]:
    """Return the given parameters, with the number of nodes if there are several.

    Raises:
        MisuseError: the workload cannot run on several nodes.
    """
    if spec.nodes <= 1:
        return spec.parameters
    if all(parameter.name != _NODES for parameter in workload.parameters):
        raise MisuseError(f"{workload.name} runs on one node; --nodes is for workloads that train")
    return {**spec.parameters, _NODES: str(spec.nodes)}


def _as_repeat(first: PlannedRun, spec: RunSpec, repeat: int) -> PlannedRun:
    """Return a repeat of `first`; with several nodes, the run that all of them derive."""
    if first.nodes == 1:
        return replace(first, run_id=_run_id(spec), repeat=repeat)
    # Derived from the job and from all in which its nodes must agree; commands may name their node.
    agreed = json.dumps([first.nodes, repeat, dict(spec.parameters), list(spec.interference)], sort_keys=True)
    what = (spec.workload, _name(spec), agreed)
    invitation = make_invitation((spec.job, *what, first.environment.name, spec.image, str(first.limits)))
    planned = replace(first, run_id=invited_run(_name(spec), invitation), repeat=repeat, invitation=invitation)
    if not (first.elsewhere and spec.workload) or _RENDEZVOUS in spec.parameters:
        return planned
    place = first.environment.meeting_point(planned.run_id)
    program = (*planned.program, "--param", f"{_RENDEZVOUS}={place}")
    return replace(planned, program=program, parameters={**planned.parameters, _RENDEZVOUS: place})


@contextlib.contextmanager
def _as_refusal(environment: Environment) -> Iterator[None]:
    try:
        yield
    except EnvironmentUnavailableError as error:
        reason = f"{environment.name} cannot be used here: {error}; {error.remedy}"
        raise EnvironmentUnavailableError(reason, error.remedy) from error


def _data(workload: Workload, parameters: Mapping[str, ParameterValue]) -> tuple[Path, ...]:
    paths = (parameters[parameter.name] for parameter in workload.parameters if parameter.type == "path")
    named = (Path(path) for path in paths if isinstance(path, str))
    return tuple(path for path in named if path.is_absolute() and path.exists())


def _run_id(spec: RunSpec) -> str:
    return f"{_name(spec)}-{secrets.token_hex(5)}"


def _name(spec: RunSpec) -> str:
    """Return the name of the workload, or of the program in letters, digits, '.', '_' and '-'."""
    return spec.workload or spec.name or name_program(spec.command)
