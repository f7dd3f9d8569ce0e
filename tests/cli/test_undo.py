"""`swink undo` as a person sees it: the changes of the last run, a question, and the restored files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swink_agent.testing import FakeProvider, FakeReply

FILES = ("--tools", "read_file,write_file,edit_file", "--approve", "all")
READ = FakeReply(calls=[("read_file", {"path": "a.txt"})])


def edit(path: str, old: str, new: str) -> FakeReply:
    return FakeReply(calls=[("edit_file", {"path": path, "edits": [{"old": old, "new": new}]})])


def write(path: str, content: str) -> FakeReply:
    return FakeReply(calls=[("write_file", {"path": path, "content": content})])


async def run(swink: Any, *replies: FakeReply, flags: tuple[str, ...] = ()) -> Any:
    async with FakeProvider("anthropic", [*replies, "Done."]) as provider:
        swink.use(provider)
        done = await swink("-p", "go", *FILES, *flags)
    assert done.code == 0, done
    return done


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def without_ids(text: str) -> str:
    """The text with what differs from run to run taken out."""
    import re

    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "TIME", re.sub(r"\b[0-9a-f]{8}\b", "ID", text))


async def test_the_last_run_is_shown_and_put_back_and_then_the_one_before(swink: Any) -> None:
    (swink.folder / "a.txt").write_text("one\ntwo\n")
    await run(swink, edit("a.txt", "one", "ONE"), write("new/b.txt", "b\n"))
    await run(swink, READ, write("a.txt", "all new\n"))
    shown = await swink("undo", "--dry-run")
    assert (shown.code, shown.stderr) == (0, "")
    assert without_ids(shown.stdout) == (
        f"Run ID of TIME in {swink.folder}:\n  put back  a.txt  +2 -1\n"
        "\na.txt\n  @ -1 +1,2 @@\n  - all new\n  + ONE\n  + two\n"
    )
    refused = await swink("undo")
    assert refused.code == 2
    assert "stdin is not a terminal, so you cannot be asked: add --yes to put it back" in refused.stderr
    assert tree(swink.folder) == {"a.txt": "all new\n", "new/b.txt": "b\n"}

    first = await swink("undo", "--yes")
    assert first.code == 0
    assert without_ids(first.stdout).splitlines()[-1] == "1 path put back. To take that back: swink undo --run ID"
    assert tree(swink.folder) == {"a.txt": "ONE\ntwo\n", "new/b.txt": "b\n"}
    second = await swink("undo", "-y")
    assert without_ids(second.stdout).splitlines()[1:4] == [
        "  put back  a.txt      +1 -1",
        "  remove    new",
        "  remove    new/b.txt  -1",
    ]
    assert tree(swink.folder) == {"a.txt": "one\ntwo\n"}
    assert not (swink.folder / "new").exists()

    listed = without_ids((await swink("undo", "--list")).stdout).splitlines()
    assert listed == [
        "ID  TIME  3 paths  undo of ID",
        "ID  TIME   1 path  undo of ID",
        "ID  TIME   1 path  put back",
        "ID  TIME  3 paths  put back",
    ]
    nothing = await swink("undo", "-y")
    assert nothing.code == 2
    assert "are already undone" in nothing.stderr

    again = second.stdout.split()[-1]
    assert (await swink("undo", "-y", "--run", again)).code == 0
    assert tree(swink.folder) == {"a.txt": "ONE\ntwo\n", "new/b.txt": "b\n"}
    assert (await swink("undo", "-y")).code == 0  # what the undo had put back stands again, and can be put back again
    assert tree(swink.folder) == {"a.txt": "one\ntwo\n"}


async def test_changes_made_by_a_command_are_undone_too(swink: Any) -> None:
    (swink.folder / "a.txt").write_text("one\n")
    (swink.folder / "keep").mkdir()
    command = "echo two > a.txt; mkdir -p made/deep; echo x > made/deep/f; rmdir keep; chmod +x a.txt; ln -s a.txt l"
    async with FakeProvider("anthropic", [FakeReply(calls=[("bash", {"command": command})]), "Done."]) as provider:
        swink.use(provider)
        done = await swink("-p", "go", "--approve", "all", "--sandbox", "off")
    assert done.code == 0, done
    assert (swink.folder / "made/deep/f").exists()
    assert (await swink("undo", "--yes")).code == 0
    assert sorted(path.name for path in swink.folder.iterdir()) == ["a.txt", "keep"]
    assert tree(swink.folder) == {"a.txt": "one\n"}
    assert (swink.folder / "a.txt").stat().st_mode & 0o111 == 0


@pytest.mark.sweep
async def test_later_changes_by_others_are_left_and_mentioned(swink: Any) -> None:
    (swink.folder / "a.txt").write_text("one\n")
    (swink.folder / "b.txt").write_text("one\n")
    await run(swink, edit("a.txt", "one", "two"), edit("b.txt", "one", "two"))
    (swink.folder / "a.txt").write_text("mine\n")
    done = await swink("undo", "-y")
    assert done.code == 1
    assert "  leave     a.txt         was changed since; --force restores it anyway\n" in done.stdout
    assert tree(swink.folder) == {"a.txt": "mine\n", "b.txt": "one\n"}
    listed = (await swink("undo", "--list")).stdout.splitlines()
    assert without_ids(listed[1]) == "ID  TIME  2 paths  put back"
    ids = [line.split()[0] for line in listed]
    assert (await swink("undo", "-y", "--force", "--run", ids[-1])).code == 0
    assert tree(swink.folder) == {"a.txt": "one\n", "b.txt": "one\n"}


@pytest.mark.sweep
async def test_where_nothing_was_changed_it_says_so_and_where_it_was(swink: Any) -> None:
    done = await swink("undo")
    assert (done.code, done.stdout) == (2, "")
    assert "there is nothing to undo" in done.stderr
    assert "No run has changed anything here." in (await swink("undo", "--list")).stderr
    (swink.folder / "a.txt").write_text("one\n")
    await run(swink, edit("a.txt", "one", "two"))
    (swink.folder / "sub").mkdir()
    below = await swink("undo", "-C", "sub")
    assert f"one did from {swink.folder}: swink undo -C {swink.folder}" in below.stderr
    assert (await swink("undo", "--run", "zz")).code == 2


@pytest.mark.sweep
async def test_undo_that_is_turned_off_keeps_no_copies(swink: Any) -> None:
    (swink.folder / "a.txt").write_text("one\n")
    swink.environ["SWINK_UNDO"] = "off"
    await run(swink, edit("a.txt", "one", "two"))
    assert (swink.folder / "a.txt").read_text() == "two\n"
    assert "there is nothing to undo" in (await swink("undo")).stderr


async def test_where_no_copies_can_be_kept_nothing_is_changed(swink: Any) -> None:
    (swink.folder / "a.txt").write_text("one\n")
    (swink.home / "file").write_text("")
    swink.environ["SWINK_DATA_DIR"] = str(swink.home / "file/data")
    done = await run(swink, edit("a.txt", "one", "two"))
    assert "files will not be changed" in done.stderr
    assert (swink.folder / "a.txt").read_text() == "one\n"


async def test_a_person_is_asked(terminal: Any, swink: Any) -> None:
    (swink.folder / "a.txt").write_text("one\n")
    await run(swink, edit("a.txt", "one", "two"))
    await terminal.start("undo")
    await terminal.expect("put back  a.txt  +1 -1")
    await terminal.expect("Put 1 path back?")
    terminal.type("y\n")
    assert await terminal.finish() == 0
    assert (swink.folder / "a.txt").read_text() == "one\n"


@pytest.mark.sweep
async def test_changes_in_an_added_folder_are_mentioned(swink: Any, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (swink.folder / "a.txt").write_text("one\n")
    await run(
        swink,
        edit("a.txt", "one", "two"),
        write(str(other / "b.txt"), "b\n"),
        write(str(other / "c.txt"), "c\n"),
        flags=("--add-dir", str(other)),
    )
    shown = await swink("undo", "--yes")
    assert shown.code == 0
    assert tree(swink.folder) == {"a.txt": "one\n"}
    note = without_ids(shown.stdout).splitlines()[-1]
    assert note == f"The same run changed 2 paths in {other}: swink undo -C {other} --run ID"
    there = await swink("undo", "-C", str(other), "--yes")
    assert there.code == 0
    assert tree(other) == {}
    assert "The same run" not in there.stdout, "the rest of it is put back already"


@pytest.mark.sweep
async def test_a_run_that_changed_only_an_added_folder_is_found_from_its_own(swink: Any, tmp_path: Path) -> None:
    other = tmp_path / "the other one"
    other.mkdir()
    await run(swink, write(str(other / "b.txt"), "b\n"), flags=("--add-dir", str(other)))
    done = await swink("undo")
    assert done.code == 2
    assert f"the last one changed files in {other}: swink undo -C '{other}'" in done.stderr
    assert (await swink("undo", "-y", "-C", str(other))).code == 0
    assert tree(other) == {}
