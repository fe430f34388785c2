"""The times of building and moving images, kept on the node for later runs in those images."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from gpuagent.environments.environment import Image


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """The times that an image took, in seconds; None: not done here, or not by gpuagent.

    Attributes:
        build_seconds: from the recipe to the image, without a cache of earlier builds.
        push_seconds: to the registry.
        pull_seconds: from the registry, with none of it here before.
    """

    build_seconds: float | None = None
    push_seconds: float | None = None
    pull_seconds: float | None = None


class ImageRecords:
    """A folder with one small JSON file for each image that was built or pulled here."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, environment: str, image: Image) -> Durations:
        """Return the times of `image`; all None if other means changed or replaced it since."""
        try:
            data = json.loads(self._path(environment, image).read_text())
        except (OSError, ValueError):
            return Durations()
        known = data if isinstance(data, Mapping) else {}
        times = {field.name: known.get(field.name) for field in fields(Durations)}
        return Durations(**{name: float(value) for name, value in times.items() if isinstance(value, int | float)})

    def add(self, environment: str, image: Image, durations: Durations) -> Durations:
        """Store `durations` beside the known times of `image`; return all of them.

        Raises OSError: the file cannot be written.
        """
        new = {name: seconds for name, seconds in asdict(durations).items() if seconds is not None}
        known = {**asdict(self.find(environment, image)), **new}
        path = self._path(environment, image)
        self._folder.mkdir(parents=True, exist_ok=True)
        made = path.with_suffix(".new")
        made.write_text(json.dumps({"environment": environment, **asdict(image), **known}, indent=2) + "\n")
        made.replace(path)
        return Durations(**known)

    def _path(self, environment: str, image: Image) -> Path:
        identity = image.digest
        if identity is None:
            # A directory has no digest; its inode differs from that of a later one in its place.
            place = Path(image.name)
            identity = f"{place.resolve()} {place.stat().st_ino if place.exists() else ''}"
        return self._folder / f"{hashlib.sha256(f'{environment} {identity}'.encode()).hexdigest()[:32]}.json"
