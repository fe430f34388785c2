"""Templates for pages. Every text that they insert is escaped, and made harmless."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from gpuagent_common.text import harmless


def templates(folder: Path) -> Environment:
    """Return the templates of a folder. Only Markup is inserted as it is."""
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        finalize=_inert,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def escaped(text: str) -> Markup:
    """Return `text` without a meaning in HTML, and without characters that hide or reorder their neighbours."""
    return escape(harmless(text))


def _inert(value: object) -> object:
    return harmless(value) if isinstance(value, str) and not isinstance(value, Markup) else value
