"""The copies for undo are out of a model's reach, also where it works in the very folder that they lie in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from swink_agent import AgentTool, ToolContext, extract_text
from swink_agent.tools import UndoStore, standard_tools
from swink_agent.tools.files.rewind import plan_rewind
from swink_agent.tools.workspace.wall import Workspace

WHERE = ".local/share/swink-agent/undo"
MARK = "what-the-user-wrote"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    (home / "a.txt").write_text(f"{MARK}\n")
    return home


@pytest.fixture
def tools(home: Path) -> dict[str, AgentTool]:
    return {tool.name: tool for tool in standard_tools(home, undo=UndoStore(home / WHERE))}


async def use(tool: AgentTool, **arguments: Any) -> tuple[bool, str]:
    result = await tool.execute(arguments, ToolContext())
    return result.is_error, extract_text(result.content)


async def replace(tools: dict[str, AgentTool]) -> None:
    failed, told = await use(tools["edit_file"], path="a.txt", edits=[{"old": MARK, "new": "gone"}])
    assert not failed, told


def copies(home: Path) -> list[Path]:
    return [path for path in (home / WHERE).rglob("*.copy") if MARK in path.read_text()]


async def test_file_tools_do_not_see_or_touch_them(home: Path, tools: dict[str, AgentTool]) -> None:
    await replace(tools)
    [copy] = copies(home)
    relative = str(copy.relative_to(home))
    (home / "door").symlink_to(WHERE)
    for path in (relative, WHERE, f"door/{copy.parent.name}", f"{WHERE}/new"):
        for name, arguments in (
            ("read_file", {"path": path}),
            ("write_file", {"path": path, "content": "x"}),
            ("edit_file", {"path": path, "edits": [{"old": "", "new": "x"}]}),
            ("list_dir", {"path": path}),
        ):
            failed, told = await use(tools[name], **arguments)
            assert failed, (name, path)
            assert MARK not in told
    for arguments in ({"pattern": MARK}, {"glob": "*.copy"}, {"pattern": MARK, "path": ".local"}):
        _, told = await use(tools["search"], **arguments)
        assert "copy" not in told.replace("*.copy", "")
    assert copies(home) == [copy]


@pytest.mark.parametrize("is_first", [True, False], ids=["before the first change", "after it"])
async def test_commands_neither_read_nor_change_them(home: Path, tools: dict[str, AgentTool], is_first: bool) -> None:
    failed, told = await use(tools["bash"], command="echo ran")
    if failed:
        pytest.skip(f"no sandbox works here: {told}")
    assert told == "ran\n"
    if not is_first:
        await replace(tools)
    for command in (
        f"find {WHERE} -name '*.copy' -exec cat {{}} +; grep -r {MARK} .local 2>/dev/null",
        f"mkdir -p {WHERE}/x; touch {WHERE}/y; ln -s ../.. {WHERE}/z",
        f"rm -rf {WHERE} .local/share/swink-agent .local",
        "mv .local/share/swink-agent moved; cat moved/undo/*/*/*",
        "mv .local/share moved; cat moved/swink-agent/undo/*/*/*",
        "mv .local moved; cat moved/share/swink-agent/undo/*/*/*",
        f"chmod -R 777 {WHERE}; find . -name '*.copy'",
    ):
        _, told = await use(tools["bash"], command=command)
        assert MARK not in told, command
    if is_first:
        await replace(tools)
    assert len(copies(home)) == 1
    for folder, _, _ in os.walk(home / WHERE):
        assert os.stat(folder).st_mode & 0o077 == 0
    [run] = UndoStore(home / WHERE).runs(home)
    assert [item.what for item in plan_rewind(Workspace(home), run)] == ["restore"]
