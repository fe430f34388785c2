"""Fetches and unpacks datasets as their authors publish them."""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuagent_workloads.data.download import RemoteFile, fetch
from gpuagent_workloads.data.progress import megabytes, tell
from gpuagent_workloads.data.unpack import Contents, unpack
from gpuagent_workloads.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """An archive, and what is used of it."""

    archive: RemoteFile
    # URLs of folders that hold the archive, the authors' first.
    mirrors: Sequence[str]
    contents: Contents
    # What the unpacked files take up on a disk.
    disk_bytes: int
    # Raises DataError unless a directory holds all of it.
    check: Callable[[Path], None]
    # The folder that it consists of; None: it consists of files.
    folder: str | None = None


def prepare_dataset(dataset: Dataset, directory: Path, mirrors: Sequence[str]) -> None:
    """Have `directory` hold the dataset; fetch nothing if it does already.

    Args:
        dataset: what to fetch.
        directory: where to put it; made when it is not there.
        mirrors: URLs of folders to fetch the archive from; none: the dataset's own.

    Raises:
        MisuseError: a mirror is no http or https URL.
        DataError: the dataset cannot be had as it must be, or there is no room for it.
    """
    fault = _fault(dataset, directory)
    if fault is None:
        tell(f"{directory} holds it already")
        return
    if dataset.folder and (directory / dataset.folder).exists():
        raise DataError(f"{directory / dataset.folder} is in the way ({fault}): remove it, or name another --data")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        check_space(dataset.archive, dataset.disk_bytes, directory)
        fetch(dataset.archive, mirrors or dataset.mirrors, directory)
        _unpack(dataset, directory)
    except OSError as error:
        raise DataError(f"cannot write to {directory}: {error.strerror or error}") from error


def check_space(archive: RemoteFile, disk_bytes: int, directory: Path) -> None:
    """Check that an archive and the `disk_bytes` that are made of it fit beside what an earlier attempt left.

    Raises:
        DataError: they do not.
    """
    there_bytes = sum(path.stat().st_size for path in directory.glob(f"{archive.name}*"))
    needed_bytes = archive.max_bytes + disk_bytes - there_bytes
    free_bytes = shutil.disk_usage(directory).free
    if free_bytes < needed_bytes:
        raise DataError(
            f"{directory} has {megabytes(free_bytes)} free, and {megabytes(needed_bytes)} are needed: "
            "make room, or name another disk by --data"
        )


def _fault(dataset: Dataset, directory: Path) -> str | None:
    """Return what `directory` lacks, None if it lacks nothing."""
    try:
        dataset.check(directory)
    except DataError as error:
        return str(error)
    return None


def _unpack(dataset: Dataset, directory: Path) -> None:
    """Unpack beside, check, and only then move into place; a killed attempt leaves nothing that looks complete."""
    archive = directory / dataset.archive.name
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=directory) as scratch:
        try:
            unpack(archive, dataset.contents, Path(scratch))
            dataset.check(Path(scratch))
        except DataError as error:
            # Of no use, and a later attempt must not take it for complete.
            archive.unlink()
            raise DataError(f"{dataset.archive.name} is not as it must be: {error}") from error
        for path in Path(scratch).iterdir():
            path.replace(directory / path.name)
    archive.unlink()
