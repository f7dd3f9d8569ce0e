"""The long description of the package: README without links that lead nowhere on an index page.

Owns how README's relative links are written there. The files that they name are in the source distribution.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_BLOCK = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_IMAGE = re.compile(r"!\[[^\]]*\]\((?!https?:)[^)\s]*\)\n*")
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|mailto:)([^)\s]*)\)")


def long_description(readme: str) -> str:
    """README with the text of relative links alone, and without pictures that are not on the web."""
    parts = _BLOCK.split(readme)
    return "".join([part if part.startswith("```") else _LINK.sub(r"\1", _IMAGE.sub("", part)) for part in parts])


class LongDescription(MetadataHookInterface):
    """Gives hatchling the text in place of README as it is."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": long_description(text)}
