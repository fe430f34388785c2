"""Measures the storage below a folder: sequential and small reads, a data loader, and checkpoints.

    python -m gpuagent_workloads run storage --folder /scratch/me

Less, and faster:

    python -m gpuagent_workloads run storage --bytes 64M --files 200 --repeats 1
"""

from dataclasses import dataclass

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.parameters import Checked, parameter, parse_size
from gpuagent_workloads.workload import Workload

_MIB = 1 << 20
MOST_FILE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Checked):
    """The folder, and the files that are made in it for the time of the run."""

    # Not declared as a path: containers get those to read only.
    folder: str | None = parameter(None, help="folder to measure in; by default the run directory")
    bytes: str = parameter("512M", help="size of the large file, and of the checkpoint: 1M to 64G")
    files: int = parameter(1000, help="small files", minimum=1, maximum=100_000)
    file_bytes: str = parameter("128K", help="size of a small file: 1K to 32M")
    workers: int | None = parameter(
        None, help="processes of the data loader; by default the CPUs, at most 4", minimum=1, maximum=256
    )
    repeats: int = parameter(3, help="most rounds, of which the median is taken", minimum=1, maximum=100)

    def check_together(self) -> None:
        """Check the sizes."""
        size_within("bytes", self.bytes, _MIB, 64 << 30)
        size_within("file-bytes", self.file_bytes, 1 << 10, MOST_FILE_BYTES)


def size_within(name: str, text: str, least: int, most: int) -> int:
    """Return the bytes of a text such as 512M; the letters are powers of 1024.

    Raises:
        MisuseError: it is no size, or outside its limits.
    """
    size = parse_size(text)
    if size is None or not least <= size <= most:
        raise MisuseError(f"--{name} must be from {least:,} to {most:,} bytes, such as {least >> 10}K, not {text}")
    return size


WORKLOAD = Workload(
    name="storage",
    summary="Measures storage: cold and warm reads, small files, a data loader, and checkpoints.",
    kind="measurement",
    study="none of the five: what training waits for when it reads data and saves its state",
    data="random bytes in files that are deleted at the end; they take at most half of the free space",
    memory="three times --bytes, of which one is page cache: 1.6 GB with the defaults",
    config=Config,
    entry="gpuagent_workloads.suite.storage.measure:measure",
    first_phase="setup",
)
