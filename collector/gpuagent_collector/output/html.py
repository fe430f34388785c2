"""Pieces of HTML. All text from agents goes through `escaped`."""

from html import escape

from gpuagent_collector.output.text import harmless


def escaped(text: str) -> str:
    """Return `text` without a meaning in HTML, and without characters that hide or reorder the text beside them."""
    return escape(harmless(text))


def element(name: str, *children: str, **attributes: str | None) -> str:
    """Return an element around children that are HTML; attributes are text, `class_` is `class`, None is left out."""
    given = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None)
    written = "".join(f' {title}="{escaped(value)}"' for title, value in given)
    return f"<{name}{written}>{''.join(children)}</{name}>"
