"""A wheel of the gpuagent that is installed here, so that an image gets the same one without a package index."""

import base64
import hashlib
import importlib.metadata
import importlib.util
import zipfile
from pathlib import Path

from gpuagent_common.errors import GpuAgentError

_PACKAGES = ("gpuagent", "gpuagent_collector", "gpuagent_common", "gpuagent_proto", "gpuagent_workloads")
_METADATA = ("METADATA", "WHEEL", "entry_points.txt")


def write_wheel(folder: Path) -> Path:
    """Write the wheel into `folder` and return its path. An editable installation gives its source tree.

    Raises:
        GpuAgentError: gpuagent is not installed but runs from a folder.
    """
    try:
        installed = importlib.metadata.distribution("gpuagent")
    except importlib.metadata.PackageNotFoundError as error:
        raise GpuAgentError("gpuagent is not installed in this Python; install it: the image gets a copy") from error
    stem = f"gpuagent-{installed.version}"
    contents = _package_files()
    contents |= {f"{stem}.dist-info/{name}": (installed.read_text(name) or "").encode() for name in _METADATA}
    lines = [f"{name},sha256={_hash(content)},{len(content)}" for name, content in contents.items()]
    contents[f"{stem}.dist-info/RECORD"] = "\n".join([*lines, f"{stem}.dist-info/RECORD,,", ""]).encode()
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return path


def _package_files() -> dict[str, bytes]:
    specs = {package: importlib.util.find_spec(package) for package in _PACKAGES}
    return {
        f"{package}/{path.relative_to(place)}": path.read_bytes()
        for package, spec in specs.items()
        for place in ((spec.submodule_search_locations or ()) if spec else ())
        for path in sorted(Path(place).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def _hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
