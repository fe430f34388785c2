"""What making an image and moving it took, kept on the node so that later runs in that image tell it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from gpuagent.environments import Image


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """How long was worked on an image, in seconds; None: it was not done here, or not by gpuagent.

    Attributes:
        build_seconds: from the recipe to the image, nothing taken from a cache of earlier builds.
        push_seconds: to the registry.
        pull_seconds: from the registry, none of it here before.
    """

    build_seconds: float | None = None
    push_seconds: float | None = None
    pull_seconds: float | None = None


class ImageRecords:
    """A folder with one small JSON file for each image that was built or pulled here."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, environment: str, image: Image) -> Durations:
        """Return what is known of `image`; nothing, if it was changed or made anew by other means since."""
        try:
            data = json.loads(self._path(environment, image).read_text())
        except (OSError, ValueError):
            return Durations()
        return Durations(**{field.name: _seconds(data, field.name) for field in fields(Durations)})

    def add(self, environment: str, image: Image, durations: Durations) -> Durations:
        """Keep `durations` beside what is known of `image` already; return both.

        Raises:
            OSError: it cannot be written.
        """
        known = {**asdict(self.find(environment, image)), **_present(durations)}
        path = self._path(environment, image)
        self._folder.mkdir(parents=True, exist_ok=True)
        made = path.with_suffix(".new")
        made.write_text(json.dumps({"environment": environment, **asdict(image), **known}, indent=2) + "\n")
        made.replace(path)
        return Durations(**known)

    def _path(self, environment: str, image: Image) -> Path:
        text = f"{environment} {image.digest or _place(image)}"
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def _place(image: Image) -> str:
    """Return what tells an image without a digest, a directory, from one that takes its place later."""
    path = Path(image.name)
    return f"{path.resolve()} {path.stat().st_ino if path.exists() else ''}"


def _present(durations: Durations) -> dict[str, float]:
    return {name: seconds for name, seconds in asdict(durations).items() if seconds is not None}


def _seconds(data: Any, name: str) -> float | None:
    value = data.get(name) if isinstance(data, Mapping) else None
    return float(value) if isinstance(value, int | float) else None
