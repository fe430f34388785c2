"""Make one file that installs gpuagent on nodes without a network: make_installer.py [--python 3.11 …].

It is deploy/installer/install.sh with an archive appended: gpuagent's wheel, the wheels that it depends on for each of
the Pythons, pip, and the scripts for Slurm and systemd. Making it needs a package index, installing none.
For other machines than x86_64 and aarch64 it has the agent alone, and needs the distribution's compiled packages.
"""

import argparse
import email
import hashlib
import io
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]

# Wheels for these run on every Linux with glibc 2.28 (RHEL 8, Debian 10) or newer.
WHEEL_PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")

# Machines for which the index has a wheel of every dependency; for others it lacks these of the agent: name and module.
WHEEL_MACHINES = ("x86_64", "aarch64")
COMPILED = {"grpcio": "grpc", "psutil": "psutil", "pyyaml": "yaml"}


def main() -> None:
    """Make the file and print its path."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    parser.add_argument("--python", nargs="+", default=[here], metavar="X.Y", help=f"Python versions (default {here})")
    parser.add_argument("--machine", default=platform.machine(), help="aarch64, ppc64le, … (default: this machine's)")
    parser.add_argument("--extra", action="append", default=[], help="include this extra, such as collector")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the file")
    arguments = parser.parse_args()
    if arguments.extra and arguments.machine not in WHEEL_MACHINES:
        parser.error(f"--extra: {arguments.machine} has the agent alone; see docs/deploy/power.md")
    with tempfile.TemporaryDirectory() as name:
        payload = Path(name)
        folder = payload / "wheels"
        _python("-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT))
        (wheel,) = folder.glob("*.whl")
        extras = f"[{','.join(arguments.extra)}]" if arguments.extra else ""
        complete = arguments.machine in WHEEL_MACHINES
        wanted = [f"{wheel}{extras}"] if complete else ["--no-deps", *_pure_requirements(wheel)]
        for python in arguments.python:
            abi = f"cp{python.replace('.', '')}"
            options = [f"--python-version={python}", "--implementation=cp", f"--abi={abi}", "--abi=abi3", "--abi=none"]
            options += [f"--platform={kind}_{arguments.machine}" for kind in WHEEL_PLATFORMS]
            constraints = ["--constraint", str(ROOT / "constraints.txt")]
            _python(
                *("-m", "pip", "download", "--quiet", "--only-binary=:all:", f"--dest={wheel.parent}"),
                *(*options, *constraints, *wanted, "pip"),
            )
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
            for folder in (payload / "wheels", ROOT / "deploy/slurm", ROOT / "deploy/systemd"):
                tar.add(folder, arcname=folder.name, filter=_without_owner)
        archive = buffer.getvalue()
    version = wheel.name.split("-")[1]
    values = {
        "VERSION": version,
        "MACHINE": arguments.machine,
        "PYTHONS": " ".join(arguments.python),
        "EXTRAS": extras,
        "SHA256": hashlib.sha256(archive).hexdigest(),
        "MODULES": "" if complete else " ".join(COMPILED.values()),
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    made: Path = arguments.out / f"gpuagent-{version}-linux-{arguments.machine}.run"
    text = (ROOT / "deploy/installer/install.sh").read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    made.write_bytes(text.encode() + archive)
    made.chmod(0o755)
    print(f"{made} ({made.stat().st_size / 1e6:.1f} MB)")


def _pure_requirements(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])
    requirements = map(Requirement, lines)
    return [str(each) for each in requirements if not each.marker and each.name.lower() not in COMPILED]


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def _python(*arguments: str) -> None:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(arguments[:3])} failed:\n{(done.stdout + done.stderr)[-2000:]}")


if __name__ == "__main__":
    main()
