"""One tool for several folders: each call goes to the tool of the folder that its path is in.

Chooses the tool, and notes in which folder a result's names are. Each tool confines itself to its folder: no call
reaches two of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal, cast

from swink_agent.core.tool import AgentTool, AgentToolResult, ToolContext
from swink_agent.core.types import Text

from ._bounded import show_name


class SeveralFoldersTool:
    """The tool of the main folder; absolute paths in another folder go to that folder's tool of the same kind."""

    def __init__(self, main: AgentTool, root: str, others: Sequence[tuple[str, AgentTool]]) -> None:
        self._main = main
        self._folders = {id(tool): os.path.realpath(folder) for folder, tool in others}
        spelled = [(spelling, tool) for folder, tool in others for spelling in (folder, os.path.realpath(folder))]
        # The innermost first, including the main one: one folder may be inside another.
        places = [*spelled, (root, main), (os.path.realpath(root), main)]
        self._places = sorted(dict(places).items(), key=lambda place: -len(place[0]))
        self.name = main.name
        self.label = main.label
        folders = ", ".join(folder for folder, _ in others)
        self.description = f"{main.description} Absolute paths may also lead into {folders}."
        self.parameters_schema = main.parameters_schema
        self.requires_approval = main.requires_approval
        self.on_steer: Literal["cancel", "finish"] = getattr(main, "on_steer", "cancel")

    def __repr__(self) -> str:
        return f"{self._main!r} and {len({id(tool) for _, tool in self._places}) - 1} more folders"

    def approval_scope(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Where the call would act. Raises `ToolError` for a call that would be refused."""
        scope = getattr(self.tool_for(arguments), "approval_scope", None)
        return {} if scope is None else cast("dict[str, Any]", scope(arguments))

    def foresee(self, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult | None:
        """The refusal of a call that would be refused, if the tool can tell."""
        tool = self.tool_for(arguments)
        foresee = getattr(tool, "foresee", None)
        refusal = None if foresee is None else cast("AgentToolResult | None", foresee(arguments, ctx))
        return None if refusal is None else self._told(refusal, tool)

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        """Runs the call in the folder of its path."""
        tool = self.tool_for(arguments)
        return self._told(await tool.execute(arguments, ctx), tool)

    def _told(self, result: AgentToolResult, tool: AgentTool) -> AgentToolResult:
        """The result with a note on which folder its names are in. The text of a file has no names and is not
        changed."""
        folder = self._folders.get(id(tool))
        if folder is None or (tool.name == "read_file" and not result.is_error):
            return result
        shown = show_name(folder)
        note = Text(f"\n[names here are those of {shown}: write {shown}/NAME to use one]")
        return AgentToolResult((*result.content, note), self.with_whole_path(result.details, tool), result.is_error)

    def with_whole_path(self, details: Any, tool: object) -> Any:
        """Details for people and logs, with a path that shows the folder."""
        folder = self._folders.get(id(tool))
        if folder is None or not isinstance(details, dict):
            return details
        known = cast("dict[str, Any]", details)
        path = known.get("path")
        return {**known, "path": os.path.join(folder, path)} if isinstance(path, str) else known

    def tool_for(self, arguments: dict[str, Any]) -> AgentTool:
        """The tool for a call with these arguments."""
        path = arguments.get("path")
        if not isinstance(path, str) or not os.path.isabs(path):
            return self._main
        path = os.path.normpath(path)
        for folder, tool in self._places:
            if path == folder or path.startswith(folder.rstrip("/") + "/"):
                return tool
        return self._main
