"""The `list_dir` tool: the entries of a folder, each with the path that the other tools take.

The listing is sorted and bounded. Links are shown and never followed; names that could deceive are escaped.
"""

from __future__ import annotations

import heapq
import os
import stat
from typing import Any

from swink_agent.core.errors import ToolError
from swink_agent.core.machine.beneath import FOLDER
from swink_agent.core.tool import AgentToolResult

from .._bounded import OUTPUT_LIMIT, bound_text, show_name, show_size
from .file_tool import Call, FileTool, as_json

DEEPEST = 5
MOST_ENTRIES = 1000  # the most entries in one listing
MOST_OF_A_FOLDER = 300  # the most entries of one folder beneath the one asked for
_MOST_SCANNED = 100_000  # the most names that are examined, in all folders of one listing together
_ROOM = OUTPUT_LIMIT - 8192  # the rest is for the last lines and notes


class ListDirTool(FileTool):
    """Lists a folder of the workspace, including hidden files, and deeper levels on request."""

    name = "list_dir"
    label = "List folder"
    description = (
        "Lists a folder in the workspace, one path to a line: folders end with /, files have their size, links show "
        "their target. The paths can be given to the other tools as they are."
    )
    parameters_schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The folder, relative to the workspace. Default: all of it"},
            "depth": {
                "type": "integer",
                "minimum": 1,
                "maximum": DEEPEST,
                "description": f"How many levels to list, 1 to {DEEPEST}. Default 1",
            },
        },
        "required": [],
        "additionalProperties": False,
    }

    def run(self, call: Call) -> AgentToolResult:
        with self.workspace.open_folder(call.arguments.get("path") or ".") as folder:
            listing = _Listing(self, call)
            listing.add(folder.fd, folder.parts, int(call.arguments.get("depth", 1)), MOST_ENTRIES)
            details = {"path": as_json(folder.path), "entries": listing.count}
            text = bound_text("\n".join(listing.lines), keep="head", hint="list a folder further down").text
            if not text:
                name = show_name("/".join(folder.parts))
                more = f"\n[{name} holds nothing; list_dir of . shows what else there is]" if name else ""
                text = f"[the folder is empty]{more}"
            return AgentToolResult.text(text, details)


class _Listing:
    """The lines of one listing, added folder by folder until the limit is reached."""

    def __init__(self, tool: ListDirTool, call: Call) -> None:
        self.workspace = tool.workspace
        self.call = call
        self.lines: list[str] = []
        self.count = 0
        self.size = 0
        self.scanned = 0

    @property
    def is_full(self) -> bool:
        return self.count >= MOST_ENTRIES or self.size >= _ROOM

    def add(self, fd: int, parts: tuple[str, ...], depth: int, most: int) -> None:
        """Adds the entries of an open folder, and of those in it, `depth` levels deep."""
        names, total = self.names_in(fd, min(most, MOST_ENTRIES - self.count))
        shown = 0
        for name in names:
            if self.is_full:
                break
            self.add_entry(fd, (*parts, name), depth)
            shown += 1
        if shown < total:
            where = show_name("/".join(parts)) or "this folder"
            is_cut = self.scanned > _MOST_SCANNED
            more = f"more than {total - shown:,}" if is_cut else f"{total - shown:,}"
            self.lines.append(f"[{where} has {more} entries more; list it alone, or use search with a glob]")

    def names_in(self, fd: int, most: int) -> tuple[list[str], int]:
        """The first names in order, and how many names the folder has; counting stops at the scan limit."""
        total = 0

        def names() -> Any:
            nonlocal total
            with os.scandir(fd) as entries:
                for entry in entries:
                    total += 1
                    self.scanned += 1
                    if self.scanned > _MOST_SCANNED:
                        return
                    if not self.call.is_wanted:
                        raise ToolError("list_dir was cancelled")
                    yield entry.name

        return heapq.nsmallest(max(most, 1), names()), total

    def add_entry(self, folder: int, parts: tuple[str, ...], depth: int) -> None:
        name, shown = parts[-1], show_name("/".join(parts))
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            target = os.readlink(name, dir_fd=folder) if stat.S_ISLNK(status.st_mode) else ""
        except OSError:  # deleted since it was listed
            return
        if stat.S_ISDIR(status.st_mode):
            self.add_folder(folder, parts, f"{shown}/", depth)
        elif target:
            self.add_line(f"{shown} -> {show_name(target)}")
        elif stat.S_ISREG(status.st_mode):
            self.add_line(f"{shown}  ({show_size(status.st_size)})")
        else:
            self.add_line(f"{shown}  (no regular file)")

    def add_folder(self, above: int, parts: tuple[str, ...], shown: str, depth: int) -> None:
        if depth <= 1:
            self.add_line(shown)
        elif parts[-1] == ".git" or self.workspace.is_hidden(parts):
            self.add_line(f"{shown}  (not listed)")
        else:
            self.add_line(shown)
            try:
                fd = os.open(parts[-1], FOLDER, dir_fd=above)
            except OSError as error:
                self.lines[-1] = f"{shown}  (cannot be opened: {error.strerror})"
                return
            try:
                self.add(fd, parts, depth - 1, MOST_OF_A_FOLDER)
            finally:
                os.close(fd)

    def add_line(self, line: str) -> None:
        self.count += 1
        self.size += len(line.encode()) + 1
        self.lines.append(line)
