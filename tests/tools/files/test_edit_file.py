"""edit_file: exact replacements, all or nothing, and the error for one that does not fit."""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import Agent, AgentToolResult, ModelSpec, ToolContext, ToolError, ToolResultMessage, extract_text
from swink_agent.approvals import Approvals
from swink_agent.core.approval import Grant
from swink_agent.core.tool import Toolbox
from swink_agent.testing import call, scripted
from swink_agent.tools import EditFileTool, ReadFileTool, Workspace
from swink_agent.tools.files.edits import Edit, apply_edits
from swink_agent.tools.files.nearest import describe_nearest
from swink_agent.tools.workspace.workspace import WHOLE_FILE_LIMIT

Edits = list[dict[str, Any]]


@pytest.fixture
def tool(folder: Path) -> EditFileTool:
    return EditFileTool(Workspace(folder, fsync=lambda fd: None))


def said(result: AgentToolResult) -> str:
    assert not result.is_error, extract_text(result.content)
    return extract_text(result.content)


def refused(result: AgentToolResult) -> str:
    assert result.is_error
    return extract_text(result.content)


def edits(*pairs: tuple[str, str]) -> Edits:
    return [{"old": old, "new": new} for old, new in pairs]


async def test_a_piece_is_replaced_and_the_change_told(tool: EditFileTool, folder: Path, use: Any) -> None:
    (folder / "a.py").write_text("one\ntwo\nthree\n")
    (folder / "a.py").chmod(0o755)
    result = await use(tool, path="a.py", edits=edits(("two", "2")))
    assert said(result) == "Edited a.py: 1 replacement, at line 2."
    assert result.details == {"path": "a.py", "old": "one\ntwo\nthree\n", "new": "one\n2\nthree\n", "is_new": False}
    assert (folder / "a.py").read_text() == "one\n2\nthree\n"
    assert (folder / "a.py").stat().st_mode & 0o777 == 0o755


async def test_edits_are_applied_in_order_each_on_what_the_one_before_left(
    tool: EditFileTool, folder: Path, use: Any
) -> None:
    (folder / "a").write_text("one two three")
    said(await use(tool, path="a", edits=edits(("one", "four"), ("four two", "5"), (" three", ""))))
    assert (folder / "a").read_text() == "5"


async def test_one_edit_that_does_not_fit_undoes_them_all(tool: EditFileTool, folder: Path, use: Any) -> None:
    (folder / "a").write_text("one two three")
    result = await use(tool, path="a", edits=edits(("one", "1"), ("one two", "x"), ("three", "3")))
    assert refused(result).startswith(
        "edit 2 of 3: old was not found in a; nothing was changed. The nearest is at line 1:"
    )
    assert (folder / "a").read_text() == "one two three"
    assert os.listdir(folder) == ["a"]


async def test_a_piece_found_twice_asks_for_more_context(tool: EditFileTool, folder: Path, use: Any) -> None:
    (folder / "a").write_text("x = 1\ny = 2\nx = 1\nx = 1\n")
    assert refused(await use(tool, path="a", edits=edits(("x = 1", "x = 2")))) == (
        "old is found 3 times in a, at lines 1, 3 and 4; nothing was changed. Add lines around it to old and new, so "
        "that it fits once, say which line, or set replace_all"
    )
    said(await use(tool, path="a", edits=[{"old": "x = 1", "new": "x = 9", "line": 4}]))
    said(await use(tool, path="a", edits=[{"old": "x = 9", "new": "x = 1", "line": 1}]))  # there is only the one
    said(await use(tool, path="a", edits=edits(("y = 2\nx = 1", "y = 2\nx = 3"))))
    result = await use(tool, path="a", edits=[{"old": "x = 1", "new": "x = 2", "replace_all": True}])
    assert said(result) == "Edited a: 2 replacements, at lines 1 and 4."
    assert (folder / "a").read_text() == "x = 2\ny = 2\nx = 3\nx = 2\n"


def test_overlapping_text_is_found_twice() -> None:
    with pytest.raises(ToolError, match="old is found 2 times"):
        apply_edits("aaa", "", [Edit("aa", "b")], "a")
    assert apply_edits("aaaa", "", [Edit("aa", "b", True)], "a")[0] == "bb"


def test_many_places_are_not_all_named() -> None:
    with pytest.raises(ToolError, match=r"found 500 times in a, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and more;"):
        apply_edits("x\n" * 500, "\n", [Edit("x", "y")], "a")


@pytest.mark.parametrize(
    ("given_edits", "why"),
    [
        (edits(("one", "one")), "old and new are the same, so nothing was changed: new is the text as it should be"),
        (edits(("", "")), "old and new are both empty: there is nothing to change, and nothing was"),
        (
            edits(("one", "1"), ("1", "one")),
            "the edits cancel each other out: a would stay as it is, nothing was changed",
        ),
        (
            edits(("one\r\n", "one\n")),
            "old and new are the same, so nothing was changed: new is the text as it should be",
        ),
    ],
)
async def test_edits_that_say_nothing_are_errors(
    tool: EditFileTool, folder: Path, use: Any, given_edits: Edits, why: str
) -> None:
    (folder / "a").write_text("one\n")
    assert refused(await use(tool, path="a", edits=given_edits)) == why


async def test_an_empty_old_creates_a_file_or_fills_an_empty_one(tool: EditFileTool, folder: Path, use: Any) -> None:
    result = await use(tool, path="sub/new", edits=edits(("", "one\n"), ("one", "two")))
    assert said(result) == "Created sub/new: 1 replacement, at line 1; wrote line 1."
    assert result.details == {"path": "sub/new", "old": "", "new": "two\n", "is_new": True}
    (folder / "empty").touch()
    said(await use(tool, path="empty", edits=edits(("", "one\n"))))
    assert ((folder / "sub/new").read_text(), (folder / "empty").read_text()) == ("two\n", "one\n")


@pytest.mark.parametrize(
    ("before", "new", "line", "after", "told"),
    [
        (b"a\nb\n", "c", None, b"a\nb\nc\n", "added line 3"),
        (b"a\nb\n", "c\nd\n", None, b"a\nb\nc\nd\n", "added lines 3-4"),
        (b"a\nb", "c", None, b"a\nb\nc", "added line 3"),
        (b"a\nb", "\nc\n", None, b"a\nb\nc\n", "added line 3"),
        (b"a\nb\n", "\nc\n", None, b"a\nb\n\nc\n", "added lines 3-4"),
        (b"a\r\nb\r\n", "c\nd", None, b"a\r\nb\r\nc\r\nd\r\n", "added lines 3-4"),
        (b"a\r\nb", "c\n", None, b"a\r\nb\r\nc\r\n", "added line 3"),
        (b"a", "c", None, b"a\nc", "added line 2"),
        (b"", "c", None, b"c", "wrote line 1"),
        (b"a\nb\n", "c", 1, b"c\na\nb\n", "added line 1"),
        (b"a\nb\n", "c\n", 2, b"a\nc\nb\n", "added line 2"),
        (b"a\nb", "c", 2, b"a\nc\nb", "added line 2"),
        (b"a\nb\n", "c", 3, b"a\nb\nc\n", "added line 3"),
        (b"", "c\n", 1, b"c\n", "wrote line 1"),
        (b"\xef\xbb\xbfa\r\n", "b", 1, b"\xef\xbb\xbfb\r\na\r\n", "added line 1"),
    ],
)
async def test_an_empty_old_adds_lines_and_leaves_those_around_them_whole(
    tool: EditFileTool, folder: Path, use: Any, before: bytes, new: str, line: int | None, after: bytes, told: str
) -> None:
    (folder / "a").write_bytes(before)
    edit = {"old": "", "new": new} | ({} if line is None else {"line": line})
    assert said(await use(tool, path="a", edits=[edit])) == f"Edited a: {told}."
    assert (folder / "a").read_bytes() == after


async def test_lines_are_not_added_at_a_missing_line(tool: EditFileTool, folder: Path, use: Any) -> None:
    (folder / "a").write_text("one\n")
    assert refused(await use(tool, path="a", edits=[{"old": "", "new": "x", "line": 3}])) == (
        "a has 1 line: there is no line 3 to insert at; leave line out to add at the end. Nothing was changed"
    )
    assert (folder / "a").read_text() == "one\n"


async def test_a_missing_file_is_not_edited(tool: EditFileTool, folder: Path, use: Any) -> None:
    assert refused(await use(tool, path="sub/a", edits=edits(("x", "y")))) == (
        "sub/a does not exist; neither does the folder sub: nothing was changed. To make a new file, use write_file"
    )
    assert os.listdir(folder) == []


def test_the_schema_wants_edits_of_two_texts(tool: EditFileTool) -> None:
    toolbox = Toolbox([tool])
    for wrong in ([], [{"old": "a"}], [{"old": "a", "new": "b", "sandbox": "off"}], "a", [["a", "b"]]):
        assert toolbox.problems("edit_file", {"path": "a", "edits": wrong})
    assert toolbox.problems("edit_file", {"path": "a", "edits": edits(("a", "b")), "root": "/"})


# -- encodings and line ends ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny", b"x\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\nc\r\n"),
        (b"a\nb\nc\n", "a\r\nb", "x\r\ny", b"x\ny\nc\n"),
        (b"a\r\nb\nc\r\nd\n", "b\nc", "x\ny", b"a\r\nx\ny\r\nd\n"),
        (b"a\r\nb\nc\r\n", "\nb\n", "\nx\ny\n", b"a\r\nx\r\ny\r\nc\r\n"),
        (b"\xef\xbb\xbfa\r\n", "a", "x\ny", b"\xef\xbb\xbfx\r\ny\r\n"),
        ("a\r\nü".encode("utf-16"), "a\nü", "ö\nb", "ö\r\nb".encode("utf-16")),
        ("grüße\n".encode("latin-1"), "ü", "ö", "größe\n".encode("latin-1")),
        ("äöü\n".encode() + b"\xff\n", "äöü", "x", b"x\n\xff\n"),
    ],
)
async def test_line_ends_marks_and_encodings_are_kept(
    tool: EditFileTool, folder: Path, use: Any, data: bytes, old: str, new: str, after: bytes
) -> None:
    (folder / "a").write_bytes(data)
    said(await use(tool, path="a", edits=edits((old, new))))
    assert (folder / "a").read_bytes() == after


async def test_characters_outside_the_encoding_are_an_error(tool: EditFileTool, folder: Path, use: Any) -> None:
    (folder / "a").write_bytes("grüße\n".encode("latin-1"))
    assert refused(await use(tool, path="a", edits=edits(("ü", "€")))) == (
        "a is Latin-1, which has no '€': use other characters, or write the whole file with write_file"
    )


async def test_binary_and_very_large_files_are_not_edited(tool: EditFileTool, folder: Path, use: Any) -> None:
    (folder / "a").write_bytes(b"a\0b")
    assert (
        refused(await use(tool, path="a", edits=edits(("a", "b"))))
        == "a is a binary file, not text: it cannot be edited"
    )
    os.truncate(folder / "a", WHOLE_FILE_LIMIT + 1)
    assert "more than the 16.8 MB that can be edited here" in refused(
        await use(tool, path="a", edits=edits(("a", "b")))
    )


TEXTS = st.text(st.sampled_from("ab\n"), max_size=12)
SOME = st.text(st.sampled_from("ab\n"), min_size=1, max_size=3)


@given(text=TEXTS, pairs=st.lists(st.tuples(SOME, TEXTS, st.booleans()), min_size=1, max_size=4))
@settings(max_examples=500)
def test_edits_are_what_replace_does(text: str, pairs: list[tuple[str, str, bool]]) -> None:
    expected: str | None = text
    for old, new, replace_all in pairs:
        found = sum(expected.startswith(old, at) for at in range(len(expected)))
        if old == new or not found or (found > 1 and not replace_all):
            expected = None
            break
        expected = expected.replace(old, new)
    if expected == text:
        expected = None
    try:
        result = apply_edits(text, "\n", [Edit(*pair) for pair in pairs], "a")[0]
    except ToolError:
        result = None
    assert result == expected


@given(
    lines=st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.sampled_from(["\n", "\r\n"])), min_size=1, max_size=8),
    old=SOME,
    new=TEXTS,
    style=st.sampled_from(["\n", "\r\n"]),
)
@settings(max_examples=500)
def test_line_ends_that_are_not_replaced_stay_each_what_it_was(
    lines: list[tuple[str, str]], old: str, new: str, style: str
) -> None:
    text = "".join(line + end for line, end in lines)
    plain = text.replace("\r\n", "\n")
    try:
        result = apply_edits(text, style, [Edit(old, new)], "a")[0]
    except ToolError:
        return
    assert result.replace("\r\n", "\n") == plain.replace(old, new)
    at = plain.index(old)
    before = len([end for _, end in lines[: plain[:at].count("\n")]])
    ends = [end for _, end in lines]
    kept = ends[:before] + [style] * new.count("\n") + ends[before + old.count("\n") :]
    assert [("\r\n" if line.endswith("\r") else "\n") for line in result.split("\n")[:-1]] == kept


# -- the nearest match ---------------------------------------------------------------------------------------


CODE = """import os

def greet(name):
\treturn "Hello, " + name

def part(name):
    return 'Bye, ' + name
"""


@pytest.mark.table
@pytest.mark.parametrize(
    ("old", "told"),
    [
        (
            'def greet(name):\n    return "Hello, " + name',
            'The nearest is at lines 3-4:\ndef greet(name):\n\treturn "Hello, " + name\n'
            "Only spaces and line ends differ: the file has tabs where old has none.",
        ),
        (
            "def part(name):\n  return 'Bye, ' + name",
            "The nearest is at lines 6-7:\ndef part(name):\n    return 'Bye, ' + name\n"
            "Only spaces, tabs and line ends differ: copy them exactly.",
        ),
        (
            'def part(name):\n    return "Bye, " + name',
            "The nearest is at lines 6-7:\ndef part(name):\n    return 'Bye, ' + name\n"
            "Line 7 is \"    return 'Bye, ' + name\" where old has '    return \"Bye, \" + name'.",
        ),
        (
            "    return \u2018Bye, \u2019 + name",
            "The nearest is at line 7:\n    return 'Bye, ' + name\n"
            "Only quotation marks, dashes or the like differ: copy them exactly.",
        ),
        ("IMPORT OS", "The nearest is at line 1:\nimport os\nOnly upper and lower case differ."),
        (
            "def grete(names):",
            "The nearest is at line 3:\ndef greet(name):\n"
            "Line 3 is 'def greet(name):' where old has 'def grete(names):'.",
        ),
        (
            "import os\\n\\ndef greet",
            "It is there with real line ends where old has a backslash and an n: write old with line ends.",
        ),
        (
            "completely unlike 1234567890",
            f"Nothing in it is much like it. This is all of it; copy old from here:\n{CODE}",
        ),
    ],
)
def test_the_nearest_match_is_told_with_what_differs(old: str, told: str) -> None:
    assert describe_nearest(CODE, old) == told


def test_a_guess_at_a_setting_finds_the_line_it_is_about() -> None:
    many = "".join(f"option_{number} = {number}\n" for number in range(300))
    for text in ("PORT = 3000\n", "port: 3000\n", '  "port": 3000,\n', "export PORT=3000\n"):
        for around in ("HOST = 'x'\n", many):
            assert text.strip() in describe_nearest(around + text + around, "PORT=8080")


def test_invented_text_is_answered_with_lines_that_share_its_words() -> None:
    many = "".join(f"option_{number} = {number}\n" for number in range(300))
    told = describe_nearest(f"{many}serverPort = int(env['LISTEN'])\n", "server:\n  listen: 9999\n  port: 8080\n")
    assert told == (
        "Nothing in it is much like it: read the file with read_file and copy old from there. These lines share words "
        "with it, each behind its number:\n301: serverPort = int(env['LISTEN'])"
    )
    told = describe_nearest(many, "@@@ ???")
    assert "It begins with these lines, each behind its number:\n1: option_0 = 0\n2: option_1 = 1\n" in told
    assert describe_nearest("", "x = 1") == "The file is empty: to add text, leave old empty."


@pytest.mark.parametrize("old", ["", "\n\n", " ", "x" * 10_000, "\n".join(["same line"] * 5000)])
def test_any_text_has_an_answer(old: str) -> None:
    for text in ("", "\n", "same line\n" * 3000, "x" * 1_000_000, CODE):
        assert len(describe_nearest(text, old)) < 6000


@pytest.mark.sweep
def test_the_search_for_the_nearest_is_bounded() -> None:
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefgh ", k=60)) for _ in range(500)]
    text = "\n".join(chance.choice(words) + str(number) for number in range(200_000))
    started = time.process_time()
    describe_nearest(text, "\n".join("".join(chance.choices("abcdefgh ", k=60)) for _ in range(400)))
    assert time.process_time() - started < 4


# -- what changed meanwhile ----------------------------------------------------------------------------------


async def test_a_file_that_changed_since_it_was_read_is_not_edited(tool: EditFileTool, folder: Path, use: Any) -> None:
    (folder / "a").write_text("one\n")
    said(await use(ReadFileTool(tool.workspace), path="a"))
    (folder / "a").write_text("one\nmore\n")
    assert "was changed since it was read" in refused(await use(tool, path="a", edits=edits(("one", "1"))))
    said(await use(ReadFileTool(tool.workspace), path="a"))
    said(await use(tool, path="a", edits=edits(("one", "1"))))
    said(await use(tool, path="a", edits=edits(("more", "2"))))
    assert (folder / "a").read_text() == "1\n2\n"


async def test_edits_of_one_file_at_once_all_count(tool: EditFileTool, folder: Path, use: Any) -> None:
    (folder / "a").write_text("".join(f"<{number}>" for number in range(20)))
    results = await asyncio.gather(
        *[use(tool, path="a", edits=edits((f"<{number}>", f"[{number}]"))) for number in range(20)]
    )
    assert all(not result.is_error for result in results)
    assert (folder / "a").read_text() == "".join(f"[{number}]" for number in range(20))


async def test_it_does_what_was_approved_and_nothing_else(tool: EditFileTool, folder: Path) -> None:
    (folder / "a").write_text("one")
    arguments: dict[str, Any] = {"path": "a", "edits": edits(("one", "two"))}
    other = {"path": "a", "edits": edits(("one", "three"))}
    scope = tool.approval_scope(arguments)
    assert scope == {"folder": str(tool.workspace.root), "path": "a"}
    grant = Grant("edit_file", other, scope)
    assert "is not what was approved" in refused(await tool.execute(arguments, ToolContext(grant=grant)))
    assert (folder / "a").read_text() == "one"
    said(await tool.execute(other, ToolContext(grant=grant)))
    assert (folder / "a").read_text() == "three"


@given(path=st.lists(st.sampled_from(["..", ".", "", "a", "out", "far", "in"]), max_size=5))
@settings(max_examples=100)
def test_no_path_edits_what_is_outside(path: list[str], folder: Path, outside: Path) -> None:
    if not (folder / "a").exists():
        (folder / "a").mkdir()
        (folder / "a/out").symlink_to("../../outside/secret")
        (folder / "out").symlink_to(outside)
        (folder / "far").symlink_to(outside / "new")
        (folder / "in").symlink_to("a")
    tool = EditFileTool(Workspace(folder, fsync=lambda fd: None))
    for old in ("", "outside"):
        asyncio.run(tool.execute({"path": "/".join(path), "edits": edits((old, "bad"))}, ToolContext()))
    assert os.listdir(outside) == ["secret"]
    assert (outside / "secret").read_text() == "outside"


@pytest.mark.parametrize("ask", [None, "fails"])
async def test_nobody_is_asked_about_an_edit_that_does_not_fit_and_the_model_hears_why(
    tool: EditFileTool, folder: Path, ask: str | None
) -> None:
    def asked(question: object) -> bool:
        raise AssertionError("somebody was asked")

    (folder / "a.py").write_text("def main():\n    return 1\n")
    wrong = {"path": "a.py", "edits": edits(("def mian():", "def start():"))}
    missing = {"path": "b.py", "edits": edits(("x", "y"))}
    stream = scripted([call("edit_file", **wrong), call("edit_file", **missing)], "ok")
    approvals = Approvals() if ask is None else Approvals(asked)
    agent = Agent(ModelSpec("test", "m"), stream_fn=stream, tools=[tool], approve=approvals)
    result = await agent.prompt("x")
    first, second = [extract_text(one.content) for one in result.messages if isinstance(one, ToolResultMessage)]
    assert first.startswith("old was not found in a.py")
    assert "def main():" in first
    assert second.startswith("b.py does not exist")
