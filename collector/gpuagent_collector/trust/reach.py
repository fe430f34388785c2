"""The part of the store that a viewer's token shows."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuagent_common.errors import MisuseError

# Of a platform or a label; those of agents are not longer.
_MAX_CHARACTERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """A filter of sessions by the platform and labels of their agents. It never shows all of them.

    Attributes:
        platforms: a session's platform is one of these; empty: any platform.
        labels: keys and values; for each key a session has one of its values.
    """

    platforms: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not self.platforms and not self.labels:
            raise ValueError("a reach needs platforms or labels: without both it would show everything")

    @classmethod
    def parse(cls, platforms: Sequence[str], labels: Sequence[str]) -> "Reach | None":
        """Return the reach of any number of `--platform` and `--label K=V`; None: neither was given.

        Raises:
            MisuseError: a label is not K=V, or a text is blank, too long or not printable.
        """
        pairs = [label.partition("=") for label in labels]
        if not all(key and equals for key, equals, _ in pairs):
            raise MisuseError("--label takes K=V, such as team=vision")
        for text in (*platforms, *labels):
            if not text.strip() or not text.isprintable() or len(text) > _MAX_CHARACTERS:
                raise MisuseError(f"--platform and --label take up to {_MAX_CHARACTERS:,} printable characters")
        if not platforms and not labels:
            return None
        chosen = {(key, value) for key, _, value in pairs}
        return cls(platforms=tuple(sorted(set(platforms))), labels=tuple(sorted(chosen)))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Reach":
        """Read a reach that `asdict` wrote.

        Raises:
            ValueError, TypeError, KeyError: it is not a reach.
        """
        platforms, labels = value["platforms"], [(key, text) for key, text in value["labels"]]
        texts = [*platforms, *(text for label in labels for text in label)]
        if not isinstance(platforms, list) or not all(isinstance(text, str) for text in texts):
            raise TypeError("platforms and labels must be lists of texts")
        return cls(platforms=tuple(platforms), labels=tuple(labels))

    def values_by_key(self) -> Mapping[str, Sequence[str]]:
        """Return the shown values of each label key."""
        values: dict[str, list[str]] = defaultdict(list)
        for key, value in self.labels:
            values[key].append(value)
        return values

    def __str__(self) -> str:
        """Return the filter for people."""
        labels = [f"{key}={' or '.join(values)}" for key, values in self.values_by_key().items()]
        platforms = [f"platform {' or '.join(self.platforms)}"] if self.platforms else []
        return ", ".join([*platforms, *(f"label {label}" for label in labels)])
