"""write_file: atomic, keeps mode, encoding and line ends, and overwrites nothing that was not read."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import (
    Agent,
    AgentToolResult,
    CancellationToken,
    ModelSpec,
    ProposedCall,
    ToolContext,
    ToolError,
    extract_text,
)
from swink_agent.core.approval import Grant
from swink_agent.testing import call, scripted, text
from swink_agent.tools import EditFileTool, ReadFileTool, Workspace, WriteFileTool
from swink_agent.tools.files.file_tool import Call
from swink_agent.tools.workspace.beneath import Root
from swink_agent.tools.workspace.workspace import WHOLE_FILE_LIMIT

MODEL = ModelSpec("test", "model")
WRITES = 10_000


@pytest.fixture
def tool(workspace: Workspace) -> WriteFileTool:
    return WriteFileTool(workspace)


def said(result: AgentToolResult) -> str:
    assert not result.is_error, extract_text(result.content)
    return extract_text(result.content)


def refused(result: AgentToolResult) -> str:
    assert result.is_error
    return extract_text(result.content)


async def know(tool: WriteFileTool, path: str) -> None:
    """Lets whoever calls the tool have read the file."""
    said(await ReadFileTool(tool.workspace).execute({"path": path}, ToolContext()))


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


# -- what is written -----------------------------------------------------------------------------------------


async def test_a_new_file_is_made_with_its_folders(tool: WriteFileTool, folder: Path, use: Any) -> None:
    result = await use(tool, path="a/b/new.txt", content="one\ntwo\n")
    assert said(result) == "Created a/b/new.txt (2 lines, 8 bytes)."
    assert result.details == {"path": "a/b/new.txt", "old": "", "new": "one\ntwo\n", "is_new": True}
    assert (folder / "a/b/new.txt").read_text() == "one\ntwo\n"
    assert names(folder / "a/b") == ["new.txt"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((folder / "a/b/new.txt").stat().st_mode) == 0o666 & ~mask


async def test_a_file_from_which_another_program_may_run_commands_is_named(tool: WriteFileTool, use: Any) -> None:
    result = await use(tool, path="sub/.envrc", content="export A=1\n")
    *_, report = result.content
    assert report.text == "[sub/.envrc: direnv reads it when the user allows it: look at it first]"


async def test_a_file_is_replaced_and_the_change_told(tool: WriteFileTool, folder: Path, use: Any) -> None:
    (folder / "a").write_text("old\n")
    await know(tool, "a")
    result = await use(tool, path=str(folder / "a"), content="new")
    assert said(result) == "Replaced a (1 line, 3 bytes)."
    assert result.details == {"path": "a", "old": "old\n", "new": "new", "is_new": False}
    assert (folder / "a").read_text() == "new"
    assert names(folder) == ["a"]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o640])
async def test_the_mode_is_kept(tool: WriteFileTool, folder: Path, use: Any, mode: int) -> None:
    (folder / "a").write_text("old")
    (folder / "a").chmod(mode)
    await know(tool, "a")
    said(await use(tool, path="a", content="new"))
    assert stat.S_IMODE((folder / "a").stat().st_mode) == mode


async def test_privileges_of_a_file_do_not_outlive_its_content(tool: WriteFileTool, folder: Path, use: Any) -> None:
    (folder / "a").write_text("old")
    (folder / "a").chmod(0o4755)
    await know(tool, "a")
    said(await use(tool, path="a", content="new"))
    assert stat.S_IMODE((folder / "a").stat().st_mode) == 0o755


@pytest.mark.parametrize(
    ("old", "content", "new"),
    [
        (b"a\r\nb\r\n", "x\ny\n", b"x\r\ny\r\n"),
        (b"a\r\nb\r\n", "x\r\ny\n", b"x\r\ny\r\n"),
        (b"a\nb\n", "x\r\ny\r\n", b"x\ny\n"),
        (b"a\r\nb\r\nc\n", "x\ny\n", b"x\r\ny\r\n"),
        (b"one line", "x\r\ny\n", b"x\r\ny\n"),
        (b"", "x\r\ny\n", b"x\r\ny\n"),
        (b"\xef\xbb\xbfa\r\n", "x\n", b"\xef\xbb\xbfx\r\n"),
        (b"\xef\xbb\xbfa\n", "\ufeffx\n", b"\xef\xbb\xbfx\n"),
        ("a\r\n".encode("utf-16"), "ü\n", "ü\r\n".encode("utf-16")),
        ("ä\n".encode("latin-1"), "ü\n", "ü\n".encode("latin-1")),
        ("ä\n".encode("latin-1"), "€\n", "€\n".encode()),
        (b"\x89PNG\r\n\x1a\n\0", "text\n", b"text\n"),
    ],
)
async def test_line_ends_marks_and_encodings_are_kept(
    tool: WriteFileTool, folder: Path, use: Any, old: bytes, content: str, new: bytes
) -> None:
    (folder / "a").write_bytes(old)
    await know(tool, "a")
    said(await use(tool, path="a", content=content))
    assert (folder / "a").read_bytes() == new


@given(
    lines=st.lists(st.text(st.sampled_from("ab ü\t"), max_size=5), min_size=2), newline=st.sampled_from(["\n", "\r\n"])
)
@settings(max_examples=60)
def test_every_write_keeps_the_files_line_ends(lines: list[str], newline: str, folder: Path, use: Any) -> None:
    (folder / "a").write_bytes(f"x{newline}".encode())
    tool = WriteFileTool(Workspace(folder, fsync=lambda fd: None))
    asyncio.run(know(tool, "a"))
    said(asyncio.run(use(tool, path="a", content="\n".join(lines))))
    assert (folder / "a").read_bytes() == newline.join(lines).encode()


async def test_half_a_character_is_not_written(tool: WriteFileTool, folder: Path) -> None:
    result = await tool.execute({"path": "a", "content": "x\ud800"}, ToolContext())
    assert "half of a character" in refused(result)
    assert names(folder) == []


async def test_large_texts_are_cut_in_the_details_only(tool: WriteFileTool, folder: Path, use: Any) -> None:
    content = "x" * 2_000_000
    result = await use(tool, path="a", content=content)
    assert result.details["is_cut"]
    assert len(result.details["new"]) <= 1024 * 1024
    assert (folder / "a").read_text() == content


@pytest.mark.sweep
async def test_a_file_too_large_to_read_is_replaced_once_all_of_it_was_read(
    tool: WriteFileTool, folder: Path, use: Any
) -> None:
    line = "x" * 1000 + "\n"
    (folder / "a").write_text(line * (WHOLE_FILE_LIMIT // len(line) + 1))
    reader = ReadFileTool(tool.workspace)
    said(await use(reader, path="a", limit=1))
    why = refused(await use(tool, path="a", content="new"))
    assert why.startswith("a was not written: you have not read all of it.\nIt cannot be shown as text (16.8 MB)")
    offset: int | None = 2
    while offset:
        result = await use(reader, path="a", offset=offset)
        offset = None if result.details["total_lines"] else result.details["last_line"] + 1
    os.utime(folder / "a", ns=(1, 1))
    assert "it was changed since you read it" in refused(await use(tool, path="a", content="new"))
    offset = 1
    while offset:
        result = await use(reader, path="a", offset=offset)
        offset = None if result.details["total_lines"] else result.details["last_line"] + 1
    result = await use(tool, path="a", content="new")
    assert (said(result), result.details["old_is_text"]) == ("Replaced a (1 line, 3 bytes).", False)


# -- links ---------------------------------------------------------------------------------------------------


async def test_a_link_stays_and_its_target_is_written(tool: WriteFileTool, folder: Path, use: Any) -> None:
    (folder / "sub").mkdir()
    (folder / "sub/real").write_text("old")
    (folder / "link").symlink_to("sub/real")
    (folder / "dangling").symlink_to("sub/new")
    await know(tool, "sub/real")
    result = await use(tool, path="link", content="new")
    assert result.details["path"] == "sub/real"
    said(await use(tool, path="dangling", content="fresh"))
    assert (folder / "link").is_symlink()
    assert (folder / "dangling").is_symlink()
    assert (folder / "sub/real").read_text() == "new"
    assert (folder / "sub/new").read_text() == "fresh"


async def test_nothing_is_written_outside(tool: WriteFileTool, folder: Path, outside: Path, use: Any) -> None:
    (folder / "file").symlink_to(outside / "secret")
    (folder / "new").symlink_to(outside / "new")
    (folder / "far").symlink_to(outside)
    for path in ("file", "new", "far/x", "../outside/x", str(outside / "x"), "../x", "/x-of-a-test"):
        assert "workspace" in refused(await use(tool, path=path, content="bad"))
    assert names(outside) == ["secret"]
    assert (outside / "secret").read_text() == "outside"
    assert names(folder) == ["far", "file", "new"]


async def test_another_name_of_the_same_file_keeps_its_content(
    tool: WriteFileTool, folder: Path, outside: Path, use: Any
) -> None:
    os.link(outside / "secret", folder / "hard")
    await know(tool, "hard")
    said(await use(tool, path="hard", content="new"))
    assert (folder / "hard").read_text() == "new"
    assert (outside / "secret").read_text() == "outside"


async def test_protected_files_are_not_written(tool: WriteFileTool, folder: Path, use: Any) -> None:
    (folder / ".git").mkdir()
    for path in (".git/hooks/pre-commit", ".git/config", ".swink/settings.toml"):
        assert "is protected" in refused(await use(tool, path=path, content="bad"))
    assert names(folder) == [".git"]
    assert names(folder / ".git") == []


# -- what changed meanwhile ----------------------------------------------------------------------------------


async def test_a_file_that_changed_since_it_was_read_is_not_overwritten(
    tool: WriteFileTool, folder: Path, use: Any
) -> None:
    reader = ReadFileTool(tool.workspace)
    (folder / "a").write_text("one")
    said(await use(reader, path="a"))
    before = (folder / "a").stat()
    (folder / "a").write_text("two")
    os.utime(folder / "a", ns=(before.st_atime_ns, before.st_mtime_ns))  # same size, same time
    assert refused(await use(tool, path="a", content="mine")) == (
        "a was not written: it was changed since you read it.\nTo change a part of it, use edit_file. To replace all "
        "of it, call write_file again. It holds now:\ntwo"
    )
    assert (folder / "a").read_text() == "two"
    said(await use(tool, path="a", content="mine"))
    said(await use(tool, path="a", content="mine again"))  # our own writing counts as having seen it
    (folder / "a").unlink()
    (folder / "a").write_text("mine again")  # another file of the same content is no change
    said(await use(tool, path="a", content="the end"))


async def test_a_file_changed_between_the_check_and_the_end_is_not_overwritten(folder: Path, use: Any) -> None:
    (folder / "a").write_text("one")

    def change(fd: int) -> None:
        (folder / "a").write_text("two")

    tool = WriteFileTool(Workspace(folder, fsync=change))
    await know(tool, "a")
    result = await use(tool, path="a", content="mine")
    assert "was changed since it was read" in refused(result)
    assert (folder / "a").read_text() == "two"
    assert names(folder) == ["a"]


async def test_a_file_that_appears_meanwhile_is_not_overwritten(folder: Path, use: Any) -> None:
    def appear(fd: int) -> None:
        (folder / "a").write_text("somebody's")

    result = await use(WriteFileTool(Workspace(folder, fsync=appear)), path="a", content="mine")
    assert refused(result) == "a has appeared meanwhile: read it with read_file first"
    assert (folder / "a").read_text() == "somebody's"
    assert names(folder) == ["a"]


async def test_a_folder_that_is_moved_meanwhile_is_not_written_into(
    folder: Path, outside: Path, use: Any, opener: Callable[[str], Root]
) -> None:
    (folder / "sub").mkdir()

    def move(fd: int) -> None:
        (folder / "sub").rename(outside / "sub")

    workspace = Workspace(folder, fsync=move, open_root=opener)
    assert refused(await use(WriteFileTool(workspace), path="sub/a", content="mine"))
    assert names(outside / "sub") == []


async def test_a_folder_that_becomes_a_protected_one_is_not_written_into(
    folder: Path, use: Any, opener: Callable[[str], Root]
) -> None:
    (folder / "sub").mkdir()

    def move(fd: int) -> None:
        (folder / "sub").rename(folder / ".git")

    workspace = Workspace(folder, fsync=move, open_root=opener)
    assert refused(await use(WriteFileTool(workspace), path="sub/config", content="bad"))
    assert names(folder / ".git") == []


@pytest.mark.parametrize("fault", ["fsync", "rename"])
async def test_a_fault_leaves_the_old_file_and_nothing_else(folder: Path, use: Any, fault: str) -> None:
    (folder / "a").write_text("old")

    def fail(*arguments: Any, **named: Any) -> None:
        raise OSError(28, "No space left on device")

    tool = WriteFileTool(Workspace(folder, **{fault: fail}))
    await know(tool, "a")
    result = await use(tool, path="a", content="new")
    assert refused(result) == "a: No space left on device"
    assert (folder / "a").read_text() == "old"
    assert names(folder) == ["a"]


@pytest.mark.rows(one_of=10)
async def test_readers_see_the_old_file_or_the_new_one(tool: WriteFileTool, folder: Path, use: Any) -> None:
    versions = [letter * 100_000 for letter in "ab"]
    (folder / "a").write_text(versions[0])
    await know(tool, "a")
    over = threading.Event()
    seen: set[str] = set()

    def read() -> None:
        while not over.is_set():
            seen.add((folder / "a").read_text())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(30):
            said(await use(tool, path="a", content=versions[number % 2]))
    finally:
        over.set()
        reader.join()
    assert seen <= set(versions)


async def test_writes_at_once_are_all_done(tool: WriteFileTool, folder: Path, use: Any) -> None:
    results = await asyncio.gather(*[use(tool, path=f"a/b/{n % 5}", content=f"{n % 5}") for n in range(20)])
    written = [result for result in results if said(result).startswith("Created")]
    assert sorted(result.details["path"] for result in written) == [f"a/b/{n}" for n in range(5)]
    assert {said(result).split(":")[0] for result in results if result not in written} == {"Nothing was changed"}
    assert names(folder / "a/b") == ["0", "1", "2", "3", "4"]


@pytest.mark.sweep
def test_writes_while_links_are_swapped_never_land_outside(
    folder: Path, outside: Path, opener: Callable[[str], Root]
) -> None:
    workspace = Workspace(folder, fsync=lambda fd: None, open_root=opener)
    tool = WriteFileTool(workspace)
    (folder / "real").mkdir()
    over = threading.Event()

    def point(name: str, target: str) -> None:
        os.symlink(target, folder / "spare")
        os.rename(folder / "spare", folder / name)

    def swap() -> None:
        while not over.is_set():
            for inside, out in (("real", "../outside"), (str(folder / "real"), str(outside))):
                point("door", inside)
                point("file", f"{inside}/file")
                point("door", out)
                point("file", f"{out}/secret")

    point("door", "real")
    point("file", "real/file")
    swapper = threading.Thread(target=swap)
    swapper.start()
    outcomes = {"written": 0, "refused": 0}
    deadline = time.monotonic() + 30
    try:
        while sum(outcomes.values()) < WRITES or (min(outcomes.values()) < 100 and time.monotonic() < deadline):
            number = sum(outcomes.values())
            arguments = {"path": ("door/secret", "door/new/x", "file")[number % 3], "content": f"{number}"}
            try:
                result = tool.run(Call(tool, arguments, ToolContext()))
                outcomes["refused" if result.is_error else "written"] += 1
            except ToolError:
                outcomes["refused"] += 1
    finally:
        over.set()
        swapper.join()
    assert min(outcomes.values()) >= 100, outcomes  # both happened: it was a race
    assert names(outside) == ["secret"]
    assert (outside / "secret").read_text() == "outside"


# -- approval and cancellation -------------------------------------------------------------------------------


async def test_it_needs_approval_and_says_for_what(tool: WriteFileTool, folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "link").symlink_to("sub/real")
    asked: list[ProposedCall] = []

    def approve(request: ProposedCall) -> bool:
        asked.append(request)
        return True

    stream = scripted(call("write_file", path="link", content="new"), text("done"))
    agent = Agent(MODEL, tools=[tool], stream_fn=stream, approve=approve)
    assert (await agent.prompt("go")).text == "done"
    assert [request.scope for request in asked] == [{"folder": str(tool.workspace.root), "path": "sub/real"}]
    assert (folder / "sub/real").read_text() == "new"


async def test_without_approval_nothing_is_written(tool: WriteFileTool, folder: Path) -> None:
    stream = scripted(call("write_file", path="a", content="new"), text("done"))
    await Agent(MODEL, tools=[tool], stream_fn=stream).prompt("go")
    assert names(folder) == []


async def test_files_changed_after_the_approval_are_not_written(tool: WriteFileTool, folder: Path) -> None:
    (folder / "one").write_text("one")
    (folder / "two").write_text("two")
    (folder / "link").symlink_to("one")

    def approve(request: ProposedCall) -> bool:
        (folder / "link").unlink()
        (folder / "link").symlink_to("two")
        return True

    reader = ReadFileTool(tool.workspace)
    stream = scripted(
        [call("read_file", path="one"), call("read_file", path="two")],
        call("write_file", path="link", content="new"),
        text("done"),
    )
    result = await Agent(MODEL, tools=[tool, reader], stream_fn=stream, approve=approve).prompt("go")
    assert "is not what was approved" in extract_text(result.messages[5].content)  # type: ignore[union-attr]
    assert ((folder / "one").read_text(), (folder / "two").read_text()) == ("one", "two")


@pytest.mark.parametrize("field", ["name", "arguments", "scope"])
async def test_a_grant_for_something_else_does_not_do(tool: WriteFileTool, folder: Path, field: str) -> None:
    arguments = {"path": "sub/a", "content": "new"}
    granted = {"name": "write_file", "arguments": dict(arguments), "scope": tool.approval_scope(arguments)}
    good = await tool.execute(arguments, ToolContext(grant=Grant(**granted)))
    assert not good.is_error
    (folder / "sub/a").unlink()
    (folder / "sub").rmdir()
    granted[field] = "other" if field == "name" else {**granted[field], "path": "b"}
    assert "is not what was approved" in refused(await tool.execute(arguments, ToolContext(grant=Grant(**granted))))
    assert names(folder) == []


async def test_a_cancelled_write_changes_nothing(tool: WriteFileTool, folder: Path, use: Any) -> None:
    cancel = CancellationToken()
    cancel.cancel()
    result = await use(tool, ToolContext(cancel=cancel), path="sub/a", content="new")
    assert refused(result) == "write_file was cancelled: nothing was changed"
    assert names(folder) == []


async def test_an_abandoned_write_changes_nothing(folder: Path) -> None:
    (folder / "a").write_text("old")
    reached, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def pause(fd: int) -> None:
        reached.set()
        go_on.wait(30)

    def rename(*arguments: Any, **named: Any) -> None:
        raise AssertionError("written after the end")

    class Watched(WriteFileTool):
        def run(self, call: Any) -> AgentToolResult:
            try:
                return super().run(call)
            finally:
                ended.set()

    tool = Watched(Workspace(folder, fsync=pause, rename=rename))
    await know(tool, "a")
    task = asyncio.create_task(tool.execute({"path": "a", "content": "new"}, ToolContext()))
    await asyncio.to_thread(reached.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    assert await asyncio.to_thread(ended.wait, 10)
    assert (folder / "a").read_text() == "old"
    assert names(folder) == ["a"]


async def test_steering_lets_a_write_that_has_begun_come_to_its_end(tool: WriteFileTool) -> None:
    assert (tool.on_steer, EditFileTool(tool.workspace).on_steer) == ("finish", "finish")
    assert tool.requires_approval


# -- names that programs run by themselves -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "program"),
    [(".vscode/tasks.json", "VS Code"), ("sub/.idea/x", "IntelliJ IDEA"), (".git/hooks/pre-commit", "git")],
)
async def test_a_protected_name_is_written_with_a_grant_alone(workspace: Workspace, path: str, program: str) -> None:
    tool, arguments = WriteFileTool(workspace), {"path": path, "content": "x"}
    scope = tool.approval_scope(arguments)
    assert scope["runs"]["program"] == program
    refused = await tool.execute(arguments, ToolContext())
    assert "only if a person allows that" in extract_text(refused.content)
    plain = {key: value for key, value in scope.items() if key != "runs"}
    for grant in (plain, {**scope, "runs": {**scope["runs"], "program": "x"}}):
        result = await tool.execute(arguments, ToolContext(grant=Grant("write_file", arguments, grant)))
        assert "is not what was approved" in extract_text(result.content)
    assert not (workspace.root / path).exists()
    result = await tool.execute(arguments, ToolContext(grant=Grant("write_file", arguments, scope)))
    assert (workspace.root / path).read_text() == "x"
    assert program in extract_text(result.content)


@pytest.mark.parametrize("path", [".swink/config.toml", ".git/objects/x", "a/.swink", ".git/HEAD"])
def test_other_protected_names_are_refused_before_a_question(workspace: Workspace, path: str) -> None:
    with pytest.raises(ToolError, match="is protected"):
        WriteFileTool(workspace).approval_scope({"path": path, "content": "x"})


def test_a_name_that_an_application_protects_is_refused_before_a_question(folder: Path) -> None:
    workspace = Workspace(folder, protected=(*Workspace(folder).protected, "deploy"))
    with pytest.raises(ToolError, match="is protected"):
        WriteFileTool(workspace).approval_scope({"path": "deploy/.vscode/x", "content": "x"})
