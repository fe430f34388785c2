"""The return to a backup: the copy is checked, and takes the place of the store, which is kept."""

import os
import shutil
from datetime import datetime
from pathlib import Path

from gpuagent_collector.errors import StoreError, StoreIsHeldError
from gpuagent_collector.exchange.backup import Progress
from gpuagent_collector.exchange.checks import check
from gpuagent_collector.query.local import FileReader
from gpuagent_collector.store import Kind, Store, StoreSpec
from gpuagent_common.errors import GpuAgentError, MisuseError


def restore(file: Path, spec: StoreSpec, now: datetime, progress: Progress) -> Path | None:
    """Put a checked copy of `file` in the place of a store; return the new name of the store that was there.

    Raises:
        MisuseError: the store is a lake, or is `file` itself.
        StoreError: `file` cannot be read, or a collector holds the store.
        GpuAgentError: `file` is damaged, or the disk is full. The store is unchanged.
    """
    if spec.kind is not Kind.FILE:
        raise MisuseError(f"{spec} is a lake; serve the copy itself: collector serve --store {file}")
    target = spec.path
    if target.exists() and target.samefile(file):
        raise MisuseError(f"{file} is the store itself; name a backup")
    if target.exists():
        _check_free(spec)
    try:
        reader = FileReader(StoreSpec.parse(str(file)))
    except StoreIsHeldError:
        raise
    except StoreError as error:
        raise StoreError(error.problem, "name a file that `collector backup` made") from error
    try:
        verdict = check(reader, progress)
    finally:
        reader.close()
    if not verdict.is_sound:
        raise GpuAgentError(f"{file} is damaged: `collector check --store {file}` says where; the store is unchanged")
    unfinished = target.with_name(f".{target.name}.part")
    try:
        unfinished.unlink(missing_ok=True)
        unfinished.touch(mode=0o600, exist_ok=False)  # a link that another user makes would be followed
        shutil.copyfile(file, unfinished)
        with unfinished.open("rb") as written:
            os.fsync(written.fileno())
        replaced = _set_aside(spec, now) if target.exists() else None
        unfinished.replace(target)
    except OSError as error:
        raise GpuAgentError(f"cannot restore {target}: {error.strerror}; the store is unchanged") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return replaced


def _set_aside(spec: StoreSpec, now: datetime) -> Path:
    """Give the store a second name, with its write-ahead log; raise StoreError if a collector holds it by now.

    It keeps the first until the copy takes it: a collector that found no store there would make an empty one.
    """
    aside = spec.path.with_name(f"{spec.path.name}.before-{now:%Y%m%dT%H%M%SZ}")
    _check_free(spec)
    log = spec.path.with_name(f"{spec.path.name}.wal")
    if log.exists():
        log.replace(aside.with_name(f"{aside.name}.wal"))
    try:
        aside.hardlink_to(spec.path)
    except OSError:  # a file system without links
        spec.path.replace(aside)
    return aside


def _check_free(spec: StoreSpec) -> None:
    """Raise StoreError where a collector holds the store."""
    try:
        Store.open(spec, create=False).close()
    except StoreIsHeldError:
        raise
    except StoreError:
        pass  # A damaged store is a reason to restore.
