"""The studies that come with gpuagent: experiment files of the workloads package."""

import importlib.util
from pathlib import Path

from gpuagent_common.errors import MisuseError


def studies() -> list[Path]:
    """Return their files; none where the workloads are not installed beside the agent."""
    found = importlib.util.find_spec("gpuagent_workloads")
    folders = [Path(folder) / "experiments" for folder in (found.submodule_search_locations or ())] if found else []
    return sorted(path for folder in folders for path in folder.glob("*.yaml"))


def find_file(given: Path) -> Path:
    """Return the file that is meant: one of the user's, or a study by its name.

    Raises:
        MisuseError: there is neither.
    """
    if given.exists():
        return given
    known = {path.stem: path for path in studies()}
    if str(given) in known:
        return known[str(given)]
    raise MisuseError(f"there is no file {given}, and no study of that name; there are: {', '.join(known)}")
