"""The documentation as a site: a hook of MkDocs that adds the repository's own pages, shelves and links.

README.md is the first page, and its list of documents is the navigation. A link to a file that is no page becomes the
file's name: the site has no repository to point to.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]

# Pages outside docs/, and their place in the site.
OUTSIDE = {name: name for name in ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")} | {"README.md": "index.md"}

_SHELF = re.compile(r"^- \*\*(?P<name>[^*]+)\*\*: (?P<links>(?:.*\n)(?:  .*\n)*)", re.MULTILINE)
_LINK = re.compile(r"(?P<image>!?)\[(?P<words>[^\]]*)\]\((?P<target>[^)\s]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make the navigation from README.md; pages that it does not name follow on their folder's shelf, or the last."""
    readme = (ROOT / "README.md").read_text()
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    nav: list[dict[str, Any]] = [{"gpuagent": "index.md"}]
    for shelf in _SHELF.finditer(readme):
        entries: list[Any] = []
        for link in _LINK.finditer(shelf["links"]):
            page = link["target"].removeprefix("docs/")
            pages.discard(page)
            folder = posixpath.dirname(page)
            if folder:
                others = sorted(other for other in pages if other.startswith(f"{folder}/"))
                pages -= set(others)
                entries.append({link["words"]: [page, *others]})
            else:
                entries.append({link["words"]: page})
        nav.append({shelf["name"]: entries})
    nav[-1][next(iter(nav[-1]))] += sorted(pages)
    config.nav = nav
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/."""
    for name, place in OUTSIDE.items():
        files.append(File.generated(config, place, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - by name
    """Point links at where pages are in the site."""
    place = page.file.src_uri
    source = next((name for name, there in OUTSIDE.items() if there == place), f"docs/{place}")

    def resolve(link: re.Match[str]) -> str:
        path, hash_sign, anchor = link["target"].partition("#")
        if not path or ":" in path:
            return link[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        there = OUTSIDE.get(target, target.removeprefix("docs/"))
        if files.get_file_from_path(there) is None:
            return f"{link['words']} (`{target}`)" if f"`{target}`" != link["words"] else link["words"]
        relative = posixpath.relpath(there, posixpath.dirname(place) or ".")
        return f"{link['image']}[{link['words']}]({relative}{hash_sign}{anchor})"

    return _LINK.sub(resolve, markdown)
