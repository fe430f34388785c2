"""The built-in workloads, as the workloads package lists them.

The package runs in a process of its own: it may belong to another Python, and the agent never imports it.
"""

import difflib
import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.own_module import module_command

_PACKAGE = "gpuagent_workloads"

_LIST_TIMEOUT_SECONDS = 60.0

# The exit code of wrong parameters.
_MISUSE = 2

# Of a whole number: no library takes a greater one.
_MOST = 2**63 - 1

ParameterValue = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a workload: `type` is int, float, str, bool, choice or path."""

    name: str
    type: str
    default: ParameterValue
    help: str
    choices: Sequence[str] = ()
    # The least and the greatest value; None: no limit.
    minimum: float | None = None
    maximum: float | None = None

    def parse(self, text: str) -> ParameterValue:
        """Return the value that `text` stands for. Raises MisuseError: it is not one of this parameter's values."""
        try:
            value = self._parse(text)
        except (ValueError, KeyError) as error:
            wanted = f"one of {', '.join(self.choices)}" if self.choices else f"of type {self.type}"
            raise MisuseError(f"parameter {self.name!r} must be {wanted}, not {text!r}") from error
        if isinstance(value, int) and abs(value) > _MOST:
            raise MisuseError(f"parameter {self.name!r} must be a number of at most 64 bits, not {text!r:.40}")
        if isinstance(value, int | float) and not self._allows(value):
            limits = (("at least", self.minimum), ("at most", self.maximum))
            wanted = " and ".join(f"{words} {limit:.10g}" for words, limit in limits if limit is not None)
            raise MisuseError(f"parameter {self.name!r} must be {wanted}, not {text!r}")
        return value

    def _allows(self, value: float) -> bool:
        # NaN compares false with everything, and is refused where there is a limit.
        return (self.minimum is None or value >= self.minimum) and (self.maximum is None or value <= self.maximum)

    def _parse(self, text: str) -> ParameterValue:
        match self.type:
            case "int":
                return int(text)
            case "float":
                return float(text)
            case "bool":
                return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]
            case "choice" if text not in self.choices:
                raise ValueError(text)
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A built-in workload; `kind` is training, interference, …."""

    name: str
    kind: str
    summary: str
    parameters: tuple[Parameter, ...]

    def has(self, name: str) -> bool:
        """Return whether there is a parameter of this name."""
        return any(parameter.name == name for parameter in self.parameters)

    def complete(self, given: Mapping[str, str]) -> dict[str, ParameterValue]:
        """Return every parameter with its value: as given, or its default.

        Raises MisuseError: a parameter does not exist, or a value does not fit.
        """
        by_name = {parameter.name: parameter for parameter in self.parameters}
        values: dict[str, ParameterValue] = {name: parameter.default for name, parameter in by_name.items()}
        for given_name, text in given.items():
            name = given_name.replace("_", "-")
            if name not in by_name:
                suggestion = _suggest(name, by_name, otherwise=f"see: gpuagent workloads {self.name}")
                raise MisuseError(f"{self.name} has no parameter {suggestion}")
            values[name] = by_name[name].parse(text)
        return values


class Catalogue:
    """The workloads of one Python."""

    def __init__(self, python: str) -> None:
        self._python = python
        self._workloads: dict[str, Workload] | None = None

    def workloads(self) -> dict[str, Workload]:
        """Return the workloads by name; the first call starts the workloads package.

        Raises GpuAgentError: the package is missing, or does not answer.
        """
        if self._workloads is None:
            self._workloads = {workload.name: workload for workload in parse_list(ask(self._python, as_json=True))}
        return self._workloads

    def find(self, name: str) -> Workload:
        """Return the workload called `name`.

        Raises:
            MisuseError: the name is unknown.
            GpuAgentError: the workloads package is missing, or does not answer.
        """
        workloads = self.workloads()
        if name not in workloads:
            # A kind of network, such as cnn, is a word of the summaries.
            word = re.compile(rf"\b{re.escape(name)}\b", re.IGNORECASE)
            if such := [each for each, workload in workloads.items() if word.search(workload.summary)]:
                raise MisuseError(f"unknown workload {name!r}; that is {' or '.join(such)}; see: gpuagent workloads")
            listing = "see: gpuagent workloads; a program follows `--`"
            raise MisuseError(f"unknown workload {_suggest(name, workloads, otherwise=listing)}")
        return workloads[name]

    def check_together(self, name: str, given: Sequence[Mapping[str, str]]) -> None:
        """Raise MisuseError where parameters of a workload contradict one another, in one of the `given` sets."""
        try:
            done = _run_package(self._python, "check-parameters", name, text=json.dumps([dict(each) for each in given]))
        except (OSError, subprocess.TimeoutExpired):
            return  # the run itself finds it
        *_, last_line = ["", *done.stderr.strip().splitlines()]
        # The package of another Python may be older.
        if done.returncode == _MISUSE and "No such command" not in last_line:
            raise MisuseError(f"{name}: {last_line.removeprefix('error: ')}")

    def program(self, workload: Workload, given: Mapping[str, str], python: str | None = None) -> list[str]:
        """Return the command that runs `workload` with the parameters `given`; `python` None: the catalogue's own."""
        parameters = [word for name, text in given.items() for word in ("--param", f"{name}={text}")]
        return [*module_command(python or self._python, _PACKAGE), "run", workload.name, *parameters]

    def preparation(self, workload: Workload, directory: str | None, mirrors: Sequence[str]) -> list[str]:
        """Return the command that fetches the data of `workload`; `directory` None: into its usual place."""
        place = [] if directory is None else [f"--data={directory}"]
        command = [*module_command(self._python, _PACKAGE), "prepare", workload.name]
        return [*command, *place, *(f"--mirror={mirror}" for mirror in mirrors)]


def _run_package(python: str, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command of the workloads package with `text` as its input.

    Raises OSError or TimeoutExpired: `python` does not start, or does not answer.
    """
    return subprocess.run(
        [*module_command(python, _PACKAGE), *words],
        input=text,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=_LIST_TIMEOUT_SECONDS,
        check=False,
    )


def ask(python: str, *, as_json: bool, names: Sequence[str] = ()) -> str:
    """Return the list that `python` prints of its workloads, or of those in `names`.

    Raises GpuAgentError: the package is missing, or does not answer.
    """
    try:
        done = _run_package(python, "list", *names, *(["--json"] if as_json else []))
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GpuAgentError(f"{python} cannot list its workloads: {error}; choose another with --python") from error
    if done.returncode != 0:
        *_, last_line = ["no reason given", *done.stderr.strip().splitlines()]
        raise GpuAgentError(
            f"{python} has no workloads ({last_line}); "
            "run in a checkout: pip install '.[workloads]', or choose another Python with --python"
        )
    return done.stdout


def parse_list(text: str) -> Sequence[Workload]:
    """Return the workloads in the output of `python -m gpuagent_workloads list --json`.

    Raises GpuAgentError: the text is something else.
    """
    try:
        return [
            Workload(
                name=entry["name"],
                kind=entry["kind"],
                summary=entry["summary"],
                parameters=tuple(Parameter(**parameter) for parameter in entry["parameters"]),
            )
            for entry in json.loads(text)
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise GpuAgentError(f"the list of workloads cannot be read: {error!r}") from error


def _suggest(name: str, known: Iterable[str], *, otherwise: str) -> str:
    """Return an unknown name with the closest known one, or else with another remedy."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"{name!r}; did you mean {close[0]!r}?" if close else f"{name!r}; {otherwise}"
