"""A workspace, opened in both ways, and a folder outside that must never be read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from swink_agent import AgentTool, AgentToolResult, ToolContext
from swink_agent.core.tool import Toolbox
from swink_agent.tools.workspace.beneath import Root, WalkedRoot, open_root
from swink_agent.tools.workspace.workspace import Workspace


def _walked(path: str) -> Root:
    found = open_root(path)
    return WalkedRoot(found.fd, found.path)


@pytest.fixture(params=["kernel", "walk"])
def opener(request: pytest.FixtureRequest) -> Callable[[str], Root]:
    """Opens a root through the kernel (or by the walk, if the kernel cannot), and by the careful walk."""
    return open_root if request.param == "kernel" else _walked


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder to work in. Next to it is `outside`, with a `secret` file."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("outside")
    root = tmp_path / "root"
    root.mkdir()
    return root


@pytest.fixture
def outside(folder: Path) -> Path:
    return folder.parent / "outside"


@pytest.fixture
def workspace(folder: Path, opener: Callable[[str], Root]) -> Workspace:
    return Workspace(folder, open_root=opener, fsync=lambda fd: None)


Use = Callable[..., Awaitable[AgentToolResult]]


@pytest.fixture
def use() -> Use:
    """Calls a tool as the loop would: the arguments checked against its schema first."""

    async def call(tool: AgentTool, context: ToolContext | None = None, **arguments: Any) -> AgentToolResult:
        assert Toolbox([tool]).problems(tool.name, arguments) is None
        return await tool.execute(arguments, context or ToolContext())

    return call
