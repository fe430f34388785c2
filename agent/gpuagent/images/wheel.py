"""Makes a wheel of the gpuagent that is installed here, so that an image gets the same one from no package index."""

import base64
import hashlib
import importlib.metadata
import importlib.util
import zipfile
from collections.abc import Iterator
from pathlib import Path

from gpuagent_common.errors import GpuAgentError

_PACKAGES = ("gpuagent", "gpuagent_collector", "gpuagent_common", "gpuagent_proto", "gpuagent_workloads")
_METADATA = ("METADATA", "WHEEL", "entry_points.txt")


def write_wheel(folder: Path) -> Path:
    """Write the wheel into `folder` and return its path. An editable installation gives what its source tree holds.

    Raises:
        GpuAgentError: gpuagent was not installed but is run from a folder.
    """
    try:
        installed = importlib.metadata.distribution("gpuagent")
    except importlib.metadata.PackageNotFoundError as error:
        raise GpuAgentError(
            "gpuagent is not installed in this Python; install it, for the image gets the same"
        ) from error
    stem = f"gpuagent-{installed.version}"
    contents = dict(_package_files())
    contents |= {f"{stem}.dist-info/{name}": (installed.read_text(name) or "").encode() for name in _METADATA}
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
        archive.writestr(f"{stem}.dist-info/RECORD", _record(contents, stem))
    return path


def _package_files() -> Iterator[tuple[str, bytes]]:
    for package in _PACKAGES:
        found = importlib.util.find_spec(package)
        for place in (found.submodule_search_locations or ()) if found else ():
            for path in sorted(Path(place).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    yield f"{package}/{path.relative_to(place)}", path.read_bytes()


def _record(contents: dict[str, bytes], stem: str) -> str:
    lines = [f"{name},sha256={_hash(content)},{len(content)}" for name, content in contents.items()]
    return "\n".join([*lines, f"{stem}.dist-info/RECORD,,", ""])


def _hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
