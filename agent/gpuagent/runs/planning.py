"""Planning: a request becomes runs that can be executed, or is refused before anything starts."""

import importlib.util
import json
import math
import os
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuagent.environments import find_environment
from gpuagent.environments.environment import Environment, EnvironmentUnavailableError, Home, Image, Job
from gpuagent.runs.catalogue import Catalogue, ParameterValue, Workload
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.keys import invited_run, make_invitation
from gpuagent_common.limits import MAX_LABELS, MAX_NAME_CHARACTERS, Limits, read_limits
from gpuagent_common.patterns import NO_PATTERN, Pattern, find_patterns
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
_CARRIED = ("parameters", "required_results", "invitation", "interference")

# Of a job about which only questions are asked: nothing is written there.
_NO_DIRECTORY = Path("/")

# What observes a Python program, and where: in the run directory, which every environment has at the same path.
_OBSERVE_PACKAGE, _OBSERVE_FOLDER = "gpuagent_report", "observe"

# In an image, whose own PYTHONPATH is known only inside: the folder, then the program and its arguments.
_IN_FRONT = 'PYTHONPATH="$0${PYTHONPATH:+:$PYTHONPATH}"; export PYTHONPATH; exec "$@"'

MAX_REPEATS = 10_000
# The number of a repeat is one of 32 bits in messages.
_MAX_REPEAT = 2**31 - 1
# Of one text: the kernel starts no program with a longer argument.
_MAX_TEXT_BYTES = 128 * 1024 - 1
MAX_TIMEOUT_SECONDS = 365 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One run, ready to be executed: what was asked for, and what is made of it here.

    Attributes:
        asked: the request of this run alone, with its experiment and its number.
        job: its program, to be given a run directory.
        parameters: all of its workload's.
        interference: the programs of the workloads beside it, by name.
        required_results: what a built-in workload has to report for the run to succeed.
        invitation: with several nodes, the proof that this one may join the run of that identity.
    """

    # Not shown: it has the secret that the nodes of a run share.
    asked: RunSpec = field(repr=False)
    job: Job
    parameters: Mapping[str, ParameterValue]
    environment: Environment
    interference: Mapping[str, Sequence[str]]
    required_results: Sequence[str]
    invitation: str | None = None

    @property
    def run_id(self) -> str:
        """Its identity."""
        return self.job.run_id

    @property
    def workload(self) -> str:
        """The name of its workload, or of its program."""
        return _name(self.asked)

    @property
    def nodes(self) -> int:
        """The number of nodes, each with an agent that runs its part."""
        return self.asked.nodes or 1

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """The patterns of the lines in which a command prints its steps; built-in workloads report theirs."""
        return find_patterns(self.asked.pattern) if self.asked.command else ()

    def job_in(self, directory: Path) -> Job:
        """Return the job with its run directory. Raises GpuAgentError where it cannot be observed."""
        job = replace(self.job, run_directory=directory)
        if not job.elsewhere:
            return observed(job) if self.asked.observe else job
        from google.protobuf.json_format import MessageToDict

        asked = MessageToDict(self.asked, preserving_proto_field_name=True)
        for name in ("job", "options", "working_directory", "cpu_changes"):  # who asked sees to these
            asked.pop(name, None)
        carried = {name: getattr(self, name) for name in _CARRIED}
        image = job.image.name if job.image else None
        plan = {**carried, "asked": asked, "run_id": self.run_id, "program": job.program, "image": image}
        return replace(job, elsewhere=replace(job.elsewhere, plan=plan))

    def job_beside(self, name: str, directory: Path) -> Job:
        """Return an interference job in the same image, with a run directory of its own and no limits."""
        own = ("GPUAGENT_ITEMS_PER_STEP",)  # of the run's program alone
        return Job(
            run_id=f"{self.run_id}-with-{name}",
            program=self.interference[name],
            image=self.job.image,
            run_directory=directory,
            working_directory=None,
            data=(),
            variables={name: value for name, value in self.job.variables.items() if name not in own},
        )


def read_plan(given: Mapping[str, Any], environment: Environment) -> PlannedRun:
    """Return the run that another agent planned, for the pod of this one."""
    from google.protobuf.json_format import ParseDict

    asked = ParseDict(given["asked"], RunSpec())
    image = Image(name=given["image"], digest=None, architecture=None, size_bytes=None)
    job = make_job(asked, given["run_id"], given["program"], image, (), os.environ)
    return PlannedRun(asked=asked, job=job, environment=environment, **{name: given[name] for name in _CARRIED})


def make_job(
    asked: RunSpec,
    run_id: str,
    program: Sequence[str],
    image: Image | None,
    data: Sequence[Path],
    variables: Mapping[str, str],
) -> Job:
    """Return the job of a request without a run directory, to which nothing is written."""
    if asked.command and asked.pattern != NO_PATTERN:
        # Lines that wait in a buffer have no time.
        variables = {"PYTHONUNBUFFERED": "1", **variables}
    if asked.items_per_step:
        variables = {**variables, "GPUAGENT_ITEMS_PER_STEP": f"{asked.items_per_step:.15g}"}
    return Job(
        run_id=run_id,
        program=program,
        image=image,
        run_directory=_NO_DIRECTORY,
        working_directory=Path(asked.working_directory) if asked.working_directory else None,
        data=data,
        limits=read_limits(asked),
        options=tuple(asked.options),
        variables=variables,
    )


def observed(job: Job) -> Job:
    """Return `job` with the package first in the PYTHONPATH of its program, which starts it in every Python.

    Raises GpuAgentError: the package is missing, or cannot be copied into the run directory.
    """
    found = importlib.util.find_spec(_OBSERVE_PACKAGE)
    sources = [Path(folder) for folder in (found.submodule_search_locations or ())] if found else []
    if not sources:
        raise GpuAgentError(f"--observe needs the package {_OBSERVE_PACKAGE} beside the agent; install gpuagent anew")
    folder = job.run_directory / _OBSERVE_FOLDER
    try:
        shutil.copytree(sources[0], folder / _OBSERVE_PACKAGE, ignore=shutil.ignore_patterns("__pycache__", "hook"))
        shutil.copytree(sources[0] / "hook", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    except OSError as error:
        raise GpuAgentError(f"cannot copy {_OBSERVE_PACKAGE} into {folder}: {error}") from error
    if job.image is not None:
        return replace(job, program=["/bin/sh", "-c", _IN_FRONT, str(folder), *job.program])
    given = job.variables.get("PYTHONPATH")
    path = f"{folder}:{given}" if given else str(folder)
    return replace(job, variables={**job.variables, "PYTHONPATH": path})


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
        asked = RunSpec()
        asked.CopyFrom(spec)
        asked.experiment = spec.experiment or f"{_name(spec)}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
        first = self._plan_one(asked, os.environ if variables is None else variables)
        first_repeat = spec.first_repeat or 1
        return [_as_repeat(first, repeat) for repeat in range(first_repeat, first_repeat + (spec.repeats or 1))]

    def _plan_one(self, spec: RunSpec, variables: Mapping[str, str]) -> PlannedRun:
        environment = find_environment(spec.environment)
        missing_job = MisuseError(
            "--nodes needs --job NAME, the same on all nodes and in no other run, such as "
            "--job $(openssl rand -hex 16); in a step of Slurm it is found"
        )
        if spec.nodes > 1 and not spec.job and not environment.may_be_elsewhere:
            raise missing_job
        limits = read_limits(spec)
        try:
            environment.check()
            if not environment.may_be_elsewhere:
                _check_cpus(limits)
            environment.check_limits(limits)
        except EnvironmentUnavailableError as error:
            reason = f"{environment.name} cannot be used here: {error}; {error.remedy}"
            raise EnvironmentUnavailableError(reason, error.remedy) from error
        _check_of_commands(spec, environment)
        workload = self._catalogue.find(spec.workload) if spec.workload else None
        if workload:
            program, parameters, data = self._plan_workload(spec, workload, environment)
        else:
            program, parameters, data = list(spec.command), {}, ()
        job = make_job(spec, _run_id(spec), program, environment.find_image(spec.image or None), data, variables)
        planned = PlannedRun(
            asked=spec,
            job=job,
            parameters=parameters,
            environment=environment,
            interference={beside: self._interference(beside, environment) for beside in spec.interference},
            required_results=["throughput"] if workload and workload.kind == "training" else [],
        )
        if self._home is None:
            return planned
        elsewhere = environment.find_elsewhere(job, self._home)
        if elsewhere is None:
            _check_cpus(limits)
            if spec.nodes > 1 and not spec.job:
                raise missing_job
        elif spec.nodes > 1 and not spec.job:
            # One command starts all of its nodes.
            spec.job = secrets.token_hex(16)
        return replace(planned, job=replace(job, elsewhere=elsewhere, nodes=planned.nodes if elsewhere else 1))

    def _plan_workload(
        self, spec: RunSpec, workload: Workload, environment: Environment
    ) -> tuple[list[str], Mapping[str, ParameterValue], tuple[Path, ...]]:
        """Return the program of a built-in workload, all of its parameters, and the files of the node in them."""
        given = dict(spec.parameters)
        if spec.nodes > 1:
            if not workload.has(_NODES):
                raise MisuseError(f"{workload.name} runs on one node; --nodes is for workloads that train")
            given[_NODES] = str(spec.nodes)
        parameters = workload.complete(given)
        named = [parameters[parameter.name] for parameter in workload.parameters if parameter.type == "path"]
        paths = [Path(path) for path in named if isinstance(path, str)]
        data = tuple(path for path in paths if path.is_absolute() and path.exists())
        return self._catalogue.program(workload, given, environment.python), parameters, data

    def _interference(self, name: str, environment: Environment) -> Sequence[str]:
        workload = self._catalogue.find(name)
        if workload.kind != "interference":
            known = [other.name for other in self._catalogue.workloads().values() if other.kind == "interference"]
            raise MisuseError(f"{name!r} is not an interference workload; --with takes: {', '.join(known)}")
        return self._catalogue.program(workload, {}, environment.python)


def _check_harmless(spec: RunSpec) -> None:
    """Check that a request of another user than the owner can start no program of that user's.

    Raises GpuAgentError: it could.
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
    if spec.command and not spec.command[0]:
        raise MisuseError("the command is empty")
    if spec.command and spec.name:
        check_program_name(spec.name)
    if spec.repeats > MAX_REPEATS:
        raise MisuseError(f"at most {MAX_REPEATS} repeats at once, not {spec.repeats}")
    if spec.first_repeat + spec.repeats > _MAX_REPEAT:
        raise MisuseError(f"the number of a repeat is at most {_MAX_REPEAT:,}, not {spec.first_repeat:,}")
    if not 0 <= spec.timeout_seconds <= MAX_TIMEOUT_SECONDS:
        raise MisuseError(f"the timeout must be 0 to {MAX_TIMEOUT_SECONDS:.0f} s, not {spec.timeout_seconds}")
    if len(set(spec.interference)) < len(spec.interference):
        raise MisuseError("a workload can run beside another only once")
    _check_texts(spec)


def _check_texts(spec: RunSpec) -> None:
    texts = (*spec.command, *spec.parameters.values(), spec.image, spec.working_directory, spec.experiment, spec.job)
    texts += (spec.input, *spec.options)
    if any(len(text.encode()) > _MAX_TEXT_BYTES for text in texts):
        raise MisuseError(f"an argument or parameter of a run has at most {_MAX_TEXT_BYTES:,} bytes")
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


def _check_of_commands(spec: RunSpec, environment: Environment) -> None:
    """Check the options that are for commands alone, or for workloads.

    Raises MisuseError: the other is given them, or one of them is invalid.
    """
    if spec.command and spec.parameters:
        raise MisuseError("a command takes its own arguments; --param is for built-in workloads")
    if spec.workload and spec.name:
        raise MisuseError("--name is for programs of your own; a built-in workload has its name")
    if not 0 <= spec.items_per_step < math.inf:
        raise MisuseError(f"--items-per-step must be a number above 0, not {spec.items_per_step}")
    if spec.command:
        find_patterns(spec.pattern)
    elif spec.observe or spec.pattern or spec.items_per_step:
        raise MisuseError("--observe, --pattern and --items-per-step are for commands; built-in workloads report steps")
    if spec.input and not (spec.command and environment.passes_input):
        wanted = "commands, bare or in apptainer or charliecloud"
        raise MisuseError(f"standard input is for {wanted}; not {spec.workload or environment.name}")
    if spec.input and not Path(spec.input).is_file():
        raise MisuseError(f"there is no file {spec.input} to give as standard input")


def _check_cpus(limits: Limits) -> None:
    there, most = os.cpu_count() or math.inf, max(limits.cpus or 0, *(change.cpus for change in limits.changes), 0)
    if most > there:
        raise MisuseError(f"cpus={most:g} is too many: this node has {there} CPUs")


def _as_repeat(first: PlannedRun, repeat: int) -> PlannedRun:
    """Return a repeat of `first`; with several nodes, the run that all of them derive."""
    asked = RunSpec()
    asked.CopyFrom(first.asked)
    asked.first_repeat, asked.repeats = repeat, 1
    job = first.job
    if first.nodes == 1:
        return replace(first, asked=asked, job=replace(job, run_id=_run_id(asked)))
    # Derived from the job and from all in which its nodes must agree; commands may name their node.
    agreed = json.dumps([first.nodes, repeat, dict(asked.parameters), list(asked.interference)], sort_keys=True)
    what = (asked.workload, first.workload, agreed)
    invitation = make_invitation((asked.job, *what, first.environment.name, asked.image, str(job.limits)))
    job = replace(job, run_id=invited_run(first.workload, invitation))
    planned = replace(first, asked=asked, job=job, invitation=invitation)
    if not (job.elsewhere and asked.workload) or _RENDEZVOUS in asked.parameters:
        return planned
    place = first.environment.meeting_point(job.run_id)
    program = (*job.program, "--param", f"{_RENDEZVOUS}={place}")
    return replace(planned, job=replace(job, program=program), parameters={**planned.parameters, _RENDEZVOUS: place})


def _run_id(spec: RunSpec) -> str:
    return f"{_name(spec)}-{secrets.token_hex(5)}"


def _name(spec: RunSpec) -> str:
    """Return the name of the workload, or of the program in letters, digits, '.', '_' and '-'."""
    return spec.workload or spec.name or name_program(spec.command)
