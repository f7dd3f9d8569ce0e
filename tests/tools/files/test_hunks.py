"""A change in parts: accepting some hunks makes exactly those changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import Agent, ModelSpec, ProposedCall, Redactor
from swink_agent.approvals import ApprovalAnswer, ApprovalChoice, ApprovalQuestion, Approvals
from swink_agent.testing import call, scripted, text
from swink_agent.tools import EditFileTool, ReadFileTool, Workspace, WriteFileTool, change_preview
from swink_agent.tools.files.edit_file import edits_in
from swink_agent.tools.files.edits import apply_edits
from swink_agent.tools.files.hunks import ChangeHunks

LINES = st.lists(st.sampled_from(["a", "b", "c", "", "  x", "same", "é漢"]), max_size=30)


def texts(lines: list[str], has_end: bool) -> str:
    return "\n".join(lines) + ("\n" if has_end and lines else "")


def write(new: str) -> ProposedCall:
    return ProposedCall("1", "write_file", {"path": "f", "content": new})


def edit(edits: list[dict[str, Any]]) -> ProposedCall:
    return ProposedCall("1", "edit_file", {"path": "f", "edits": edits})


def details(old: str, new: str, **more: Any) -> dict[str, Any]:
    return {"path": "f", "old": old, "new": new, "is_new": False, **more}


def made(request: ProposedCall, old: str, arguments: dict[str, Any]) -> str:
    """What the file becomes, by the rules of the tool."""
    if request.name == "write_file":
        return arguments["content"]
    return apply_edits(old, "\n", edits_in(arguments), "f")[0]


@settings(max_examples=300)
@given(LINES, LINES, st.booleans(), st.booleans(), st.data(), st.booleans())
def test_the_arguments_make_the_accepted_hunks_and_leave_the_others(
    before: list[str], after: list[str], old_end: bool, new_end: bool, data: st.DataObject, is_edit: bool
) -> None:
    # Long stretches that stay the same make several hunks of it.
    kept = [f"line {number}" for number in range(12)]
    place = data.draw(st.integers(0, len(before)))
    old = texts([*before[:place], *kept, *before[place:]], old_end)
    new = texts([*after[: len(after) // 2], *kept, *after[len(after) // 2 :]], new_end)
    request = edit([{"old": old, "new": new}]) if is_edit else write(new)
    hunks = ChangeHunks.of(request, details(old, new))
    if hunks is None:
        assert old == new
        return
    total = len(hunks.hunks)
    accepted = set(data.draw(st.lists(st.integers(0, total - 1)))) if total else set()
    assert hunks.text(set()) == old
    assert hunks.text(set(range(total))) == new
    arguments = hunks.arguments(accepted)
    if not accepted:
        assert arguments is None
        return
    assert arguments is not None
    assert made(request, old, arguments) == hunks.text(accepted)
    # Each hunk, by itself, is either in the text or not: what is not accepted reads as before.
    for number in set(range(total)) - accepted:
        removed = [line for kind, line in hunks.hunks[number].lines if kind == "removed"]
        assert all(line in hunks.text(accepted).split("\n") for line in removed)


def test_edits_of_lines_that_are_alike_change_the_right_ones() -> None:
    old = "x = 1\n" * 3 + "".join(f"keep {number}\n" for number in range(20)) + "x = 1\n" * 3
    new = old.replace("x = 1\nkeep 0", "x = 2\nkeep 0").replace("keep 19\nx = 1", "keep 19\nx = 3")
    hunks = ChangeHunks.of(edit([{"old": old, "new": new}]), details(old, new))
    assert hunks is not None
    assert len(hunks.hunks) == 2
    arguments = hunks.arguments({1})
    assert arguments is not None
    assert apply_edits(old, "\n", edits_in(arguments), "f")[0] == old.replace("keep 19\nx = 1", "keep 19\nx = 3")


@pytest.mark.table
@pytest.mark.parametrize(
    ("request_", "shown"),
    [
        (write("b\n"), details("a\n", "b\n") | {"is_new": True}),
        (write("b\n"), details("", "b\n")),
        (write("b\n"), details("a\n", "b\n", is_cut=True)),
        (write("b\n"), details("a\n", "b\n", is_exact=False)),
        (write("b\n"), details("a \ufffd\n", "b\n")),
        (write("key sk-1\n"), details("a\n", "key [masked]\n")),
        (edit([{"old": "a", "new": "key sk-1"}]), details("a\n", "key [masked]\n")),
        (edit([{"old": "gone", "new": "x"}]), details("a\n", "b\n")),
        (ProposedCall("1", "other", {"path": "f", "content": "b\n"}), details("a\n", "b\n")),
        (write("b\n"), {"notes": ["it would fail"]}),
        (write("b\n"), None),
    ],
)
def test_indivisible_changes_are_not_offered_in_parts(request_: ProposedCall, shown: dict[str, Any] | None) -> None:
    assert ChangeHunks.of(request_, shown) is None


def test_more_hunks_than_a_call_may_have_edits_are_still_one_call() -> None:
    old = "".join(f"line {number}\n" for number in range(3000))
    new = "".join(f"LINE {number}\n" if number % 12 == 0 else f"line {number}\n" for number in range(3000))
    hunks = ChangeHunks.of(edit([{"old": old, "new": new}]), details(old, new))
    assert hunks is not None
    accepted = set(range(len(hunks.hunks) - 1))
    arguments = hunks.arguments(accepted) if accepted else None
    assert arguments is None or apply_edits(old, "\n", edits_in(arguments), "f")[0] == hunks.text(accepted)


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_the_real_tools_write_exactly_that_and_keep_masked_values(tmp_path: Path, ends: str) -> None:
    secret = "sk-ant-api03-" + "aB3dE5gH7jK9mN1pQ3sT5vX7zB2dF4hJ6kL8nP0rT2vW4yA6cE8gI0kM2oQ4sU6wY8-AAAAAA"
    redactor = Redactor()
    lines = ["first", f"token = '{secret}'", *[f"line {number}" for number in range(20)], "last"]
    file = tmp_path / "settings.py"
    file.write_bytes(ends.join([*lines, ""]).encode())
    workspace = Workspace(tmp_path)
    tools = [EditFileTool(workspace), WriteFileTool(workspace)]
    edits = [{"old": "first", "new": "FIRST"}, {"old": "last", "new": "LAST"}]
    request = ProposedCall("1", "edit_file", {"path": "settings.py", "edits": edits})
    shown = change_preview(tools, redactor)(request)
    assert shown is not None
    assert secret not in shown["old"]
    for number, expected in enumerate([["FIRST", *lines[1:]], [*lines[:-1], "LAST"]]):
        whole = ProposedCall("1", "write_file", {"path": "settings.py", "content": shown["new"]})
        for asked in (request, whole):
            hunks = ChangeHunks.of(asked, change_preview(tools, redactor)(asked))
            assert hunks is not None
            assert len(hunks.hunks) == 2
            arguments = hunks.arguments({number})
            assert arguments is not None
            partial = ProposedCall("1", asked.name, arguments)
            after = change_preview(tools, redactor)(partial)
            assert after is not None
            wanted = "\n".join([*expected, ""])
            assert after["new"] == redactor.redact(wanted)
            assert "notes" not in after or not any("fail" in note for note in after["notes"])


def test_a_file_with_line_ends_of_several_kinds_is_not_offered_in_parts(tmp_path: Path) -> None:
    (tmp_path / "mixed").write_bytes(b"one\r\ntwo\nthree\r\n")
    tool = WriteFileTool(Workspace(tmp_path))
    request = ProposedCall("1", "write_file", {"path": "mixed", "content": "one\nTWO\nthree\n"})
    shown = change_preview([tool])(request)
    assert shown is not None
    assert shown["is_exact"] is False
    assert ChangeHunks.of(request, shown) is None


@pytest.mark.parametrize("name", ["write_file", "edit_file"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
async def test_an_agent_s_file_has_the_accepted_hunk_its_secret_and_nothing_else(
    tmp_path: Path, name: str, ends: str
) -> None:
    secret = "hunter2-and-more"
    lines = ["first", f"password = {secret}", *[f"line {number}" for number in range(20)], "last"]
    file = tmp_path / "settings.ini"
    file.write_bytes(ends.join([*lines, ""]).encode())
    redactor = Redactor([secret])
    tools = [
        ReadFileTool(Workspace(tmp_path)),
        EditFileTool(Workspace(tmp_path)),
        WriteFileTool(Workspace(tmp_path)),
    ]
    shown = "\n".join([*lines, ""])
    new = redactor.redact(shown).replace("first", "FIRST").replace("last", "LAST")
    edits = [{"old": "first", "new": "FIRST"}, {"old": "last", "new": "LAST"}]
    changed = call(name, path="settings.ini", **({"content": new} if name == "write_file" else {"edits": edits}))

    def ask(question: ApprovalQuestion) -> ApprovalAnswer:
        hunks = ChangeHunks.of(question.request, question.details)
        assert hunks is not None
        return ApprovalAnswer(ApprovalChoice.ONCE, arguments=hunks.arguments({1}))

    agent = Agent(
        model=ModelSpec("test", "model"),
        stream_fn=scripted(call("read_file", path="settings.ini"), changed, text("done")),
        tools=tools,
        approve=Approvals(ask, preview=change_preview(tools, redactor), redactor=redactor),
        redactor=redactor,
    )
    await agent.prompt("change it")
    assert file.read_bytes() == ends.join([*lines[:-1], "LAST", ""]).encode()
