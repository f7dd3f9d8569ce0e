"""A model cannot reach checkpoints, even if it works in the folder that holds them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from swink_agent import AgentTool, ToolContext, extract_text
from swink_agent.tools import CheckpointStore, standard_tools

WHERE = ".local/share/swink-agent/checkpoints"
MARK = "what-the-user-wrote"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    (home / "a.txt").write_text(f"{MARK}\n")
    return home


@pytest.fixture
def tools(home: Path) -> dict[str, AgentTool]:
    return {tool.name: tool for tool in standard_tools(home, checkpoints=CheckpointStore(home / WHERE))}


async def use(tool: AgentTool, **arguments: Any) -> tuple[bool, str]:
    result = await tool.execute(arguments, ToolContext(run_id="run"))
    return result.is_error, extract_text(result.content)


async def replace(tools: dict[str, AgentTool]) -> None:
    failed, told = await use(tools["edit_file"], path="a.txt", edits=[{"old": MARK, "new": "gone"}])
    assert not failed, told


async def test_file_tools_do_not_see_or_touch_them(home: Path, tools: dict[str, AgentTool]) -> None:
    await replace(tools)
    [base] = (home / WHERE).iterdir()
    before = base.read_bytes()
    relative = str(base.relative_to(home))
    (home / "door").symlink_to(WHERE)
    for path in (relative, WHERE, f"door/{base.name}", f"{WHERE}/new"):
        for name, arguments in (
            ("read_file", {"path": path}),
            ("write_file", {"path": path, "content": "x"}),
            ("edit_file", {"path": path, "edits": [{"old": "", "new": "x"}]}),
            ("list_dir", {"path": path}),
        ):
            failed, told = await use(tools[name], **arguments)
            assert failed, (name, path)
            assert MARK not in told
    for arguments in ({"pattern": MARK}, {"glob": "*.sqlite"}, {"pattern": MARK, "path": ".local"}):
        _, told = await use(tools["search"], **arguments)
        assert base.name not in told
    assert [path.name for path in (home / WHERE).iterdir()] == [base.name]
    assert len(base.read_bytes()) >= len(before)


@pytest.mark.parametrize("is_first", [True, False], ids=["before the first change", "after it"])
async def test_commands_neither_read_nor_change_them(home: Path, tools: dict[str, AgentTool], is_first: bool) -> None:
    failed, told = await use(tools["bash"], command="echo ran")
    if failed:
        pytest.skip(f"no sandbox works here: {told}")
    assert told == "ran\n"
    if not is_first:
        await replace(tools)
    for command in (
        f"cat {WHERE}/*; grep -r {MARK} .local 2>/dev/null",
        f"mkdir -p {WHERE}/x; touch {WHERE}/y; ln -s ../.. {WHERE}/z",
        f"rm -rf {WHERE} .local/share/swink-agent .local",
        "mv .local/share/swink-agent moved; cat moved/checkpoints/*",
        "mv .local/share moved; cat moved/swink-agent/checkpoints/*",
        "mv .local moved; cat moved/share/swink-agent/checkpoints/*",
        f"chmod -R 777 {WHERE}; find . -name '*.sqlite'",
    ):
        _, told = await use(tools["bash"], command=command)
        assert MARK not in told, command
        assert ".sqlite" not in told, command
    if is_first:
        await replace(tools)
    for folder, _, names in os.walk(home / WHERE):
        assert os.stat(folder).st_mode & 0o077 == 0
        assert all(os.stat(os.path.join(folder, name)).st_mode & 0o077 == 0 for name in names)
    store = CheckpointStore(home / WHERE)
    start = store.checkpoints(home)[-1]
    assert {item.path: item.what for item in store.plan(home, start)}["a.txt"] == "restore"
