"""Experiment files from the operator's side: which one is meant, and what answers it."""

import importlib.util
import shlex
from collections.abc import Sequence
from pathlib import Path

from gpuagent_common.connection import MAX_EXPERIMENT_BYTES
from gpuagent_common.errors import MisuseError
from gpuagent_proto.v1.run_pb2 import ExperimentFile

_FILE_SUFFIXES = (".yaml", ".yml")

# As the schema of experiment files has them.
_ANSWERS = frozenset({"compare", "recommend", "roofline", "profile", "scaling", "report"})


def find_file(word: str) -> Path | None:
    """Return the experiment file that is meant: a path, or the name of a study that comes along; None: a workload."""
    if word.endswith(_FILE_SUFFIXES) or Path(word).is_file():
        return Path(word)
    workloads = importlib.util.find_spec("gpuagent_workloads")
    folders = (workloads.submodule_search_locations or ()) if workloads else ()
    # A study is among the files there are: its name is no path.
    studies = (path for folder in folders for path in Path(folder).glob("experiments/*.yaml"))
    return next((path for path in studies if path.stem == word), None)


def read_file(path: Path, *, name: str | None, repeats: int | None, only: Sequence[str], force: bool) -> ExperimentFile:
    """Return what agents are sent; they say what is wrong with it.

    Raises:
        MisuseError: it cannot be read, or is too large.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MisuseError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > MAX_EXPERIMENT_BYTES:
        raise MisuseError(f"{path} is no experiment: it has more than {MAX_EXPERIMENT_BYTES} bytes")
    return ExperimentFile(
        file_name=str(path), content=content, name=name or "", repeats=repeats or 0, only=only, force=force
    )


def name_and_answers(file: ExperimentFile) -> tuple[str, list[list[str]]]:
    """Return the name of an experiment that agents have taken, and the commands of `collector` that answer it.

    Both are of the operator's own file: nothing that an agent sends is carried out, nor what only agents found right.

    Raises:
        MisuseError: another command is to answer than one that reads.
    """
    import yaml  # 20 ms, which every other command can spare

    experiment = yaml.safe_load(file.content)
    name = file.name or experiment["name"]
    commands = []
    for answer in experiment.get("answer", ()):
        words = [*shlex.split(answer), "--experiment", name]
        if words[0] not in _ANSWERS:
            raise MisuseError(f"{file.file_name}: no answer of an experiment begins with {words[0]!r}")
        if words[0] == "compare" and "--metric" not in words and "metric" in experiment:
            words += ["--metric", experiment["metric"]]
        commands.append(words)
    return name, commands
