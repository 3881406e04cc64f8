"""MkDocs hooks: pages from outside of docs/, and links to files that are not on the site.

On the repository's pages a link may lead to any file. On the site, a link to another file of the repository becomes
plain text. A link to a file that does not exist is a warning, which fails a strict build.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = {"README.md": "overview.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""File of the repository -> page of the site."""
STYLE = "stylesheets/site.css"
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`[^`\n]+`")
_log = logging.getLogger("mkdocs.hooks")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and the style that are not in docs/."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    files.append(
        File.generated(config, STYLE, content=Path(__file__).with_name("site.css").read_text(encoding="utf-8"))
    )
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Adapt links and tables to the site, outside of code blocks."""
    sources = {name: ROOT / source for source, name in PAGES.items()}
    source = sources.get(page.file.src_uri, DOCS / page.file.src_uri)
    parts = _CODE.split(markdown)
    parts[::2] = [_LINK.sub(lambda link: _moved(link, source, page.file.src_uri), part) for part in parts[::2]]
    # GitHub needs a backslash before a pipe in a table's code, and Python-Markdown would show it.
    parts[::2] = [_INLINE.sub(lambda code: code[0].replace("\\|", "|"), part) for part in parts[::2]]
    return "".join(parts)


def _moved(link: re.Match[str], source: Path, page: str) -> str:
    """Return the Markdown of a link as the site has it."""
    image, text, target, anchor = link[1], link[2], link[3], link[4] or ""
    path = (source.parent / target).resolve()
    if not path.exists():
        _log.warning("%s: link to %s, which does not exist", source.relative_to(ROOT), target)
        return link[0]
    if path == DOCS:
        path = DOCS / "README.md"
    if path.is_relative_to(DOCS):
        place = path.relative_to(DOCS).as_posix()
    elif (name := path.relative_to(ROOT).as_posix()) in PAGES:
        place = PAGES[name]
    else:
        return text
    return f"{image}[{text}]({os.path.relpath(place, os.path.dirname(page) or '.')}{anchor})"
