"""Experiment files on the operator's side: their place, their content, the commands that answer them."""

import importlib.util
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuagent_common.connection import MAX_EXPERIMENT_BYTES
from gpuagent_common.errors import MisuseError
from gpuagent_proto.v1.run_pb2 import ExperimentFile

_FILE_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A command that answers an experiment; `title` None: the file has none."""

    title: str | None
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The question of an experiment: its name and text (None: the file has none), its answers, and the whole file."""

    name: str
    text: str | None
    answers: tuple[Answer, ...]
    content: bytes


def find_file(word: str) -> Path | None:
    """Return the path of an experiment file, given as a path or as the name of a built-in study; None: a workload."""
    if word.endswith(_FILE_SUFFIXES) or Path(word).is_file():
        return Path(word)
    workloads = importlib.util.find_spec("gpuagent_workloads")
    folders = (workloads.submodule_search_locations or ()) if workloads else ()
    # Compared with the files that exist: a study's name must not become part of a path.
    studies = (path for folder in folders for path in Path(folder).glob("experiments/*.yaml"))
    return next((path for path in studies if path.stem == word), None)


def read_file(path: Path, *, name: str | None, repeats: int | None, only: Sequence[str], force: bool) -> ExperimentFile:
    """Return the message that launches a file; agents check its content.

    Raises MisuseError: the file cannot be read, or is too large.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MisuseError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > MAX_EXPERIMENT_BYTES:
        raise MisuseError(f"{path} is not an experiment file: it has more than {MAX_EXPERIMENT_BYTES} bytes")
    return ExperimentFile(
        file_name=str(path), content=content, name=name or "", repeats=repeats or 0, only=only, force=force
    )


def answers_in(file: ExperimentFile) -> Sequence[Answer]:
    """Return the commands that answer an experiment; none of a file that agents will reject, with its place.

    Raises MisuseError: an answer is not a command that only reads.
    """
    try:
        return read_question(file).answers
    except _NotReadableError:
        return ()


class _NotReadableError(MisuseError):
    """An error because a file is no experiment."""


def read_question(file: ExperimentFile) -> Question:
    """Return the question of an experiment, and the commands of `collector` that answer it.

    They come from the operator's own file: a command that an agent sends must not run here. Raises MisuseError: the
    file is no experiment, or an answer is not a command that only reads.
    """
    import yaml  # 20 ms, which no other command should pay

    try:
        experiment = yaml.safe_load(file.content)
        name, metric = str(file.name or experiment["name"]), experiment.get("metric")
        text = experiment.get("question")
        given = experiment.get("answer", ())
        pairs = [each.popitem() if isinstance(each, dict) else (None, each) for each in given]
        commands = [(title, shlex.split(words)) for title, words in pairs]
    except (yaml.YAMLError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise _NotReadableError(f"{file.file_name} is no experiment file; check it: gpuagent experiment run") from error
    answers = []
    for title, words in commands:
        words += ["--experiment", name]
        if words[:1] == ["compare"] and "--metric" not in words and metric not in (None, "throughput"):
            words += ["--metric", str(metric)]
        answers.append(Answer(title=title, words=tuple(words)))
    return Question(name=name, text=text, answers=tuple(answers), content=file.content)
