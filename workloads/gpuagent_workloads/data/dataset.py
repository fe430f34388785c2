"""Datasets as their authors publish them: fetched, unpacked and checked."""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuagent_workloads.data.download import RemoteFile, fetch, megabytes, notify
from gpuagent_workloads.data.unpack import Contents, unpack
from gpuagent_workloads.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """An archive, and the used part of it."""

    archive: RemoteFile
    # URLs of folders that hold the archive, the authors' first.
    mirrors: Sequence[str]
    contents: Contents
    # The disk space of the unpacked files.
    disk_bytes: int
    # Raises DataError unless a directory holds all of it.
    check: Callable[[Path], None]
    # The folder that it consists of; None: it consists of files.
    folder: str | None = None

    def prepare(self, directory: Path, mirrors: Sequence[str]) -> None:
        """Fetch and unpack the dataset into `directory`, unless it is there.

        Args:
            directory: created when it does not exist.
            mirrors: URLs of folders to fetch the archive from; empty: the dataset's own.

        Raises:
            MisuseError: a mirror is not an http or https URL.
            DataError: the dataset cannot be fetched intact, or the disk is full.
        """
        try:
            self.check(directory)
        except DataError as error:
            if self.folder and (directory / self.folder).exists():
                raise DataError(
                    f"{directory / self.folder} is in the way ({error}): remove it, or name another --data"
                ) from error
        else:
            notify(f"{directory} holds it already")
            return
        try:
            directory.mkdir(parents=True, exist_ok=True)
            check_space(self.archive, self.disk_bytes, directory)
            fetch(self.archive, mirrors or self.mirrors, directory)
            self._unpack(directory)
        except OSError as error:
            raise DataError(f"cannot write to {directory}: {error.strerror or error}") from error

    def _unpack(self, directory: Path) -> None:
        """Unpack beside, check, and only then move into place: a killed attempt leaves nothing that looks complete."""
        archive = directory / self.archive.name
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=directory) as scratch:
            try:
                unpack(archive, self.contents, Path(scratch))
                self.check(Path(scratch))
            except DataError as error:
                # Useless, and a later attempt must not take it for complete.
                archive.unlink()
                raise DataError(f"{self.archive.name} is damaged or another file: {error}") from error
            for path in Path(scratch).iterdir():
                path.replace(directory / path.name)
        archive.unlink()


def check_space(archive: RemoteFile, disk_bytes: int, directory: Path) -> None:
    """Check that an archive and the `disk_bytes` unpacked from it fit beside the remains of an earlier attempt.

    Raises:
        DataError: the disk is too full.
    """
    there_bytes = sum(path.stat().st_size for path in directory.glob(f"{archive.name}*"))
    needed_bytes = archive.max_bytes + disk_bytes - there_bytes
    free_bytes = shutil.disk_usage(directory).free
    if free_bytes < needed_bytes:
        raise DataError(
            f"{directory} has {megabytes(free_bytes)} free, and {megabytes(needed_bytes)} are needed: "
            "free some space, or name another disk by --data"
        )
