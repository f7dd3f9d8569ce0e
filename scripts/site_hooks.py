"""Hooks for `mkdocs`, which turns docs/ into the site. `mkdocs.yml` names this file under `hooks`.

- Puts the generated parts of the reference in place (`reference.py`).
- Adds SECURITY, CONTRIBUTING and CHANGELOG, which are in the root of the repository, as pages.
- Rewrites links: one to those files leads to their pages, one to any other file of the repository becomes plain text.
- Fails the build if a page would load anything from another host.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from reference import generated

ROOT = Path(__file__).parents[1]
ADDED = {"SECURITY.md": "security.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Files of the repository that are pages of the site, and their names there."""
_GENERATED = re.compile(r"<!-- generated: ([^>]+?) -->")
_BLOCK = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?\)")
_FROM_ELSEWHERE = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>""")


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that are not in docs/."""
    for name, page in ADDED.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fills in the generated parts and rewrites links that lead out of docs/."""
    names = {page: name for name, page in ADDED.items()}
    source = PurePosixPath(names.get(page.file.src_uri, f"docs/{page.file.src_uri}"))
    parts = _BLOCK.split(_GENERATED.sub(lambda match: generated(match[1]), markdown))
    return "".join(part if part.lstrip().startswith("```") else _with_links(part, source, page) for part in parts)


def _with_links(text: str, source: PurePosixPath, page: Any) -> str:
    def rewritten(match: re.Match[str]) -> str:
        is_image, label, target, anchor = match[1], match[2], match[3], match[4] or ""
        path = os.path.normpath(source.parent / target)
        if path in ADDED:
            place = ADDED[path]
        elif path.startswith("docs/"):
            place = path.removeprefix("docs/")
        else:
            return "" if is_image else label
        return f"{is_image}[{label}]({os.path.relpath(place, PurePosixPath(page.file.src_uri).parent)}{anchor})"

    return _LINK.sub(rewritten, text)


def on_post_build(config: Any) -> None:
    """Raises `PluginError` for a page that needs another host: the site must work offline."""
    for path in Path(config.site_dir).rglob("*.html"):
        found = _FROM_ELSEWHERE.search(path.read_text(encoding="utf-8"))
        if found:
            raise PluginError(f"{path.relative_to(config.site_dir)} loads from another host: {found[0]}")
