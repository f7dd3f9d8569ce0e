"""Naive tools with the same names, to show that an attack works without protection."""

from __future__ import annotations

import glob as globs
import os
from pathlib import Path
from typing import Any

from swink_agent import tool


def tools_without_walls(root: Path) -> list[Any]:
    """They open whatever path they are given."""

    def place(path: str) -> str:
        return os.path.join(root, path)

    @tool
    def read_file(path: str) -> str:
        """Reads."""
        with open(place(path), encoding="utf-8", errors="replace") as file:
            return file.read(100_000)

    @tool
    def write_file(path: str, content: str) -> str:
        """Writes."""
        os.makedirs(os.path.dirname(place(path)), exist_ok=True)
        with open(place(path), "w", encoding="utf-8") as file:
            file.write(content)
        return "written"

    @tool
    def edit_file(path: str, edits: list[dict[str, Any]]) -> str:
        """Edits."""
        with open(place(path), "a", encoding="utf-8") as file:
            file.write(str(edits[0]["new"]))
        return "edited"

    @tool
    def list_dir(path: str = ".", depth: int = 1) -> str:
        """Lists."""
        return "\n".join(
            name for _, folders, files in os.walk(place(path), followlinks=True) for name in folders + files
        )

    @tool
    def search(path: str = ".", pattern: str = "", glob: str = "") -> str:
        """Searches."""
        found = list(globs.glob(os.path.join(place(path), glob or "**"), recursive=True))
        files = [name for name in found if os.path.isfile(name)]
        return "\n".join(found + [Path(name).read_text(errors="replace") for name in files if pattern])

    return [read_file, write_file, edit_file, list_dir, search]
