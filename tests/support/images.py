"""The parts of images without a registry: this machine's Python as a base, its packages as wheels."""

import importlib.metadata
import shutil
import subprocess
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.containers import LIBRARY, SITE_PACKAGES, make_root
from tests.support.programs import found

# The programs of a base that the recipes use.
_APPLETS = ("chmod", "chown", "ls", "mkdir", "rm")

# Parts of Python's library. Compiled files would be copied with every step of a build.
_LEFT_OUT = (
    *("test", "idlelib", "tkinter", "ensurepip", "site-packages", "dist-packages", "lib2to3", "config-*"),
    "__pycache__",
)

_NOT_IN_WHEELS = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json")


def make_base(root: Path) -> Path:
    """Fill the folder `root` with a Python that has pip and venv, as the recipes need."""
    make_root(root)
    library = root / LIBRARY.relative_to("/")
    shutil.copytree(LIBRARY, library, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    for name in _APPLETS:
        (root / "bin" / name).symlink_to("busybox")
    shutil.copytree(SITE_PACKAGES / "pip", library / "site-packages/pip", ignore=shutil.ignore_patterns("__pycache__"))
    return root


def make_tiny_base(root: Path) -> Path:
    """Fill the folder `root` with a shell and nothing else."""
    for name in ("bin", "dev", "etc", "proc", "sys", "tmp"):
        (root / name).mkdir(parents=True)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    shutil.copy(found("busybox"), root / "bin/busybox")
    for name in ("sh", "ls", "sleep", "true", *_APPLETS[:2]):
        (root / "bin" / name).symlink_to("busybox")
    return root


def import_for_charliecloud(environment: Mapping[str, str], root: Path, name: str) -> None:
    """Give ch-image the folder `root` as the image `name`."""
    # Its scripts need the system's own Python.
    variables = {**environment, "PATH": "/usr/bin:/bin:/usr/sbin", "USER": "somebody"}
    subprocess.run([found("ch-image"), "import", str(root), name], env=variables, check=True, capture_output=True)


def write_wheels(folder: Path, requirements: Iterable[str]) -> Path:
    """Fill `folder` with a wheel of each installed package that the requirements ask for, directly or not."""
    folder.mkdir()
    for name in sorted(_closure(requirements)):
        _repack(importlib.metadata.distribution(name), folder)
    return folder


def _closure(requirements: Iterable[str]) -> set[str]:
    """Return the names of all packages that these need here, theirs included; gpuagent's own apart."""
    names: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        for extra in ("", *requirement.extras):
            for text in importlib.metadata.requires(requirement.name) or ():
                needed = Requirement(text)
                name = canonicalize_name(needed.name)
                if name not in names and (needed.marker is None or needed.marker.evaluate({"extra": extra})):
                    names.add(name)
                    waiting.append(needed)
    return names


def _repack(distribution: importlib.metadata.Distribution, folder: Path) -> None:
    tag = next(_tags(distribution))
    name = distribution.metadata["Name"].replace("-", "_").replace(".", "_")
    files = [file for file in distribution.files or () if _belongs(file)]
    record = next(str(file.parent) for file in files if file.name == "METADATA") + "/RECORD"
    with zipfile.ZipFile(folder / f"{name}-{distribution.version}-{tag}.whl", "w") as archive:
        for file in files:
            archive.write(str(file.locate()), str(file))
        archive.writestr(record, "".join(f"{file},,\n" for file in [*map(str, files), record]))


def _belongs(file: importlib.metadata.PackagePath) -> bool:
    return not str(file).startswith("..") and file.suffix != ".pyc" and file.name not in _NOT_IN_WHEELS


def _tags(distribution: importlib.metadata.Distribution) -> Iterator[str]:
    for line in (distribution.read_text("WHEEL") or "").splitlines():
        if line.startswith("Tag: ") and not line.startswith("Tag: py2"):
            yield line.removeprefix("Tag: ")
