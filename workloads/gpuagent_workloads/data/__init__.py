"""Data for the workloads: fetched, read strictly, or synthetic."""

from pathlib import Path

from gpuagent_workloads.errors import DataError


def read_file(path: Path, max_bytes: int, remedy: str = "") -> bytes:
    """Return the content of a file, ending the error message with `remedy` if it cannot be read.

    Raises DataError: it cannot be read, or has more than `max_bytes`.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(max_bytes + 1)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}{remedy}") from error
    if len(content) > max_bytes:
        raise DataError(f"{path} has more than the {max_bytes} bytes that are accepted")
    return content
