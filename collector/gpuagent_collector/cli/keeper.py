"""A keeper of what a command prints and writes while it answers an experiment."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuagent_common.errors import MisuseError

if TYPE_CHECKING:
    from gpuagent_collector.present.answer import Answer
    from gpuagent_collector.query.reader import StreamingReader


@dataclass(slots=True, kw_only=True)
class Keeper:
    """The open reader of an answering command, and the folder of its files; click's context of the command has it.

    Attributes:
        answer: the one that was printed; None: none.
        files: names of the files that were written.
        statements: the SQL of the answer.
    """

    reader: "StreamingReader"
    folder: Path
    answer: "Answer | None" = None
    files: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)


def find_keeper() -> Keeper | None:
    """Return the keeper of the running command; None: it answers no experiment."""
    context = click.get_current_context(silent=True)
    return context.find_object(Keeper) if context else None


def output_path(path: Path, *, force: bool) -> Path:
    """Return the path of a command's output: in the folder of the experiment's answer, if it is a part of one.

    Raises:
        MisuseError: it cannot be written, would be replaced without `force`, or leads out of the folder.
    """
    from gpuagent_collector.present.files import check_writable

    if keeper := find_keeper():
        if path.name != str(path):
            raise MisuseError(f"{path}: files of an answer have no folder of their own; name it {path.name}")
        keeper.files.append(path.name)
        return keeper.folder / path
    check_writable(path, force=force)
    return path
