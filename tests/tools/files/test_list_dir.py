"""list_dir: sorted, bounded, with paths that the other tools take, and without deceptive names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from swink_agent import AgentToolResult, CancellationToken, ToolContext, extract_text
from swink_agent.tools import ListDirTool, Workspace
from swink_agent.tools._bounded import OUTPUT_LIMIT


@pytest.fixture
def tool(workspace: Workspace) -> ListDirTool:
    return ListDirTool(workspace)


def said(result: AgentToolResult) -> str:
    assert not result.is_error, extract_text(result.content)
    return extract_text(result.content)


@pytest.fixture
def tree(folder: Path, outside: Path) -> Path:
    (folder / "src/deep/deeper").mkdir(parents=True)
    (folder / "src/main.py").write_text("x" * 1234)
    (folder / "src/deep/file").touch()
    (folder / ".git/objects").mkdir(parents=True)
    (folder / ".env").write_text("KEY=1")
    (folder / "Zebra").touch()
    (folder / "link").symlink_to("src/main.py")
    (folder / "out").symlink_to(outside)
    os.mkfifo(folder / "pipe")
    return folder


async def test_a_folder_is_listed_in_order(tool: ListDirTool, tree: Path, use: Any) -> None:
    result = await use(tool)
    assert said(result).split("\n") == [
        ".env  (5 bytes)",
        ".git/",
        "Zebra  (0 bytes)",
        "link -> src/main.py",
        f"out -> {tree.parent}/outside",
        "pipe  (no regular file)",
        "src/",
    ]
    assert result.details == {"path": ".", "entries": 7}


async def test_a_folder_is_listed_by_the_paths_that_other_tools_take(tool: ListDirTool, tree: Path, use: Any) -> None:
    assert said(await use(tool, path="src", depth=2)).split("\n") == [
        "src/deep/",
        "src/deep/deeper/",
        "src/deep/file  (0 bytes)",
        "src/main.py  (1.2 KB)",
    ]


async def test_neither_links_nor_the_repository_are_entered(tool: ListDirTool, tree: Path, use: Any) -> None:
    lines = said(await use(tool, depth=5)).split("\n")
    assert ".git/  (not listed)" in lines
    assert not [line for line in lines if "secret" in line or "objects" in line]
    assert said(await use(tool, path=".git")) == ".git/objects/"


async def test_paths_outside_are_not_listed(tool: ListDirTool, tree: Path, use: Any) -> None:
    for path in ("out", "..", "/etc", "src/../.."):
        result = await use(tool, path=path)
        assert result.is_error
        assert "workspace" in extract_text(result.content)


async def test_an_empty_folder_says_so(tool: ListDirTool, folder: Path, use: Any) -> None:
    assert said(await use(tool)) == "[the folder is empty]"
    (folder / "sub").mkdir()
    assert said(await use(tool, path="sub")) == (
        "[the folder is empty]\n[sub holds nothing; list_dir of . shows what else there is]"
    )


async def test_a_file_is_not_a_folder(tool: ListDirTool, tree: Path, use: Any) -> None:
    result = await use(tool, path="Zebra")
    assert extract_text(result.content) == "Zebra uses a file as a folder: see with list_dir what is there"


async def test_names_that_deceive_are_escaped(tool: ListDirTool, folder: Path, use: Any) -> None:
    for name in ("a\nb/ (fake)".replace("/", "_"), "x\u202etxt.exe", "\x1b[2J", "größe"):
        (folder / name).touch()
    (folder / "l").symlink_to("t\u202e\n")
    assert said(await use(tool)).split("\n") == [
        "\\x1b[2J  (0 bytes)",
        "a\\nb_ (fake)  (0 bytes)",
        "größe  (0 bytes)",
        "l -> t\\u202e\\n",
        "x\\u202etxt.exe  (0 bytes)",
    ]


async def test_names_that_are_not_text_are_shown(tool: ListDirTool, folder: Path, use: Any) -> None:
    os.close(os.open(os.fsencode(folder) + b"/caf\xe9", os.O_CREAT | os.O_WRONLY))
    assert said(await use(tool)) == "caf\\xe9  (0 bytes)"


async def test_a_vast_folder_is_summarised(tool: ListDirTool, folder: Path, use: Any) -> None:
    for number in range(1500):
        (folder / f"{number:05}").touch()
    lines = said(await use(tool)).split("\n")
    assert lines[:2] == ["00000  (0 bytes)", "00001  (0 bytes)"]
    assert lines[-1] == "[this folder has 500 entries more; list it alone, or use search with a glob]"
    assert len(lines) == 1001


async def test_a_vast_folder_within_leaves_room_for_the_others(tool: ListDirTool, folder: Path, use: Any) -> None:
    (folder / "many").mkdir()
    for number in range(400):
        (folder / f"many/{number:03}").touch()
    (folder / "other").touch()
    lines = said(await use(tool, depth=2)).split("\n")
    assert lines[300:] == [
        "many/299  (0 bytes)",
        "[many has 100 entries more; list it alone, or use search with a glob]",
        "other  (0 bytes)",
    ]


async def test_long_names_stay_within_the_limit(tool: ListDirTool, folder: Path, use: Any) -> None:
    deep = folder / ("d" * 200) / ("e" * 200)
    deep.mkdir(parents=True)
    for number in range(299):
        (deep / f"{number:03}{'ü' * 100}").touch()
    text = said(await use(tool, depth=3))
    assert len(text.encode()) <= OUTPUT_LIMIT
    assert "entries more" in text


async def test_hidden_folders_are_not_entered(folder: Path, use: Any) -> None:
    (folder / ".ssh").mkdir()
    (folder / ".ssh/key").touch()
    tool = ListDirTool(Workspace(folder, hidden=[str(folder / ".ssh")]))
    assert said(await use(tool, depth=3)) == ".ssh/  (not listed)"
    assert (await use(tool, path=".ssh")).is_error


async def test_an_abandoned_listing_ends(tool: ListDirTool, tree: Path, use: Any) -> None:
    cancel = CancellationToken()
    cancel.cancel()
    result = await use(tool, ToolContext(cancel=cancel))
    assert extract_text(result.content) == "list_dir was cancelled"
