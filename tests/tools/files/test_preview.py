"""The result of a write or an edit, shown before it happens."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from swink_agent import ProposedCall, Redactor
from swink_agent.approvals.display import render_request
from swink_agent.tools import standard_tools
from swink_agent.tools.files.preview import change_preview


@pytest.fixture
def preview(tmp_path: Path) -> Any:
    made = change_preview(standard_tools(tmp_path, "off"))
    return lambda name, **arguments: made(ProposedCall("1", name, arguments))


def test_a_new_file_is_new_and_nothing_is_written(preview: Any, tmp_path: Path) -> None:
    details = preview("write_file", path="src/a.py", content="x = 1\n")
    assert details == {"path": "src/a.py", "old": "", "new": "x = 1\n", "is_new": True}
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_compared(preview: Any, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\n")
    written = preview("write_file", path="a.py", content="one\n2\n")
    edited = preview("edit_file", path="a.py", edits=[{"old": "two", "new": "2"}])
    assert written == edited == {"path": "a.py", "old": "one\ntwo\n", "new": "one\n2\n", "is_new": False}
    assert (tmp_path / "a.py").read_text() == "one\ntwo\n"


def test_line_ends_of_the_file_are_not_a_change(preview: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    details = preview("write_file", path="a.txt", content="one\n2\n")
    assert (details["old"], details["new"]) == ("one\ntwo\n", "one\n2\n")


def test_a_link_is_shown_with_where_it_leads(preview: Any, tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("a\n")
    os.symlink("real.txt", tmp_path / "link.txt")
    assert preview("write_file", path="link.txt", content="b\n")["path"] == "real.txt"


def test_a_file_in_a_further_folder_is_shown_with_all_of_its_path(tmp_path: Path) -> None:
    """Else a person would take it for the file of that name in the folder itself."""
    root, other = tmp_path / "work", tmp_path / "other"
    for place in (root, other):
        place.mkdir()
        (place / "a.txt").write_text("a\n")
    made = change_preview(standard_tools(root, "off", also=[other]))
    for given, shown in {"a.txt": "a.txt", f"{root}/a.txt": "a.txt", f"{other}/a.txt": f"{other}/a.txt"}.items():
        details = made(ProposedCall("1", "write_file", {"path": given, "content": "b\n"}))
        assert details is not None
        assert details["path"] == shown


def test_an_edit_that_does_not_fit_is_said_to_fail(preview: Any, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\n")
    details = preview("edit_file", path="a.py", edits=[{"old": "three", "new": "3"}])
    assert list(details) == ["notes"]
    assert details["notes"][0].startswith("it would fail: old was not found in a.py")


def test_binary_outside_and_missing_files_are_a_note(preview: Any, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"\0\1\2")
    assert preview("write_file", path="data", content="x") == {"notes": ["the existing file is not text"]}
    for path in ("../out.txt", "/etc/passwd", "."):
        assert preview("write_file", path=path, content="x")["notes"][0].startswith("it would fail: ")


def test_other_tools_have_nothing_to_preview(preview: Any) -> None:
    assert preview("bash", command="ls") is None
    assert preview("unknown", path="a", content="x") is None


def test_secrets_are_masked_in_both_texts(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=hunter2\nA=1\n")
    redactor = Redactor(["hunter2"], environment={})
    made = change_preview(standard_tools(tmp_path, "off"), redactor)
    request = ProposedCall("1", "write_file", {"path": ".env", "content": "KEY=hunter2\nA=2\n"})
    details = made(request)
    assert details is not None
    masked = redactor.redact("hunter2")
    assert (details["old"], details["new"]) == (f"KEY={masked}\nA=1\n", f"KEY={masked}\nA=2\n")


FAR = "x = 1\n" * 200_000 + "last = 1\n"
"""More than a megabyte, of which details hold the first alone."""


def shown(tmp_path: Path, name: str, redactor: Redactor | None = None, **arguments: Any) -> str:
    """A call as a person is asked about it, whole."""
    request = ProposedCall("1", name, arguments)
    details = change_preview(standard_tools(tmp_path, "off"), redactor)(request)
    return render_request(request, details=details, limit=None)


def test_an_edit_past_the_first_megabyte_is_shown_itself(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(FAR)
    edits = [{"old": "last = 1\n", "new": "import os; os.system('id')\n"}, {"old": "", "new": "z\n", "line": 7}]
    said = shown(tmp_path, "edit_file", path="a.py", edits=edits)
    assert "no change" not in said
    assert "- last = 1" in said
    assert "+ import os; os.system('id')" in said
    assert "edit 2 of 2 before line 7" in said
    assert "a.py is too large to compare (1.2 MB, 200,001 lines): the edits are shown as the model wrote them" in said


def test_a_write_that_is_too_large_to_compare_is_shown_whole(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(FAR)
    said = shown(tmp_path, "write_file", path="a.py", content=FAR.replace("last = 1", "last = 2"))
    assert "no change" not in said
    assert said.count("\n+ x = 1") == 200_000
    assert "+ last = 2" in said
    assert "it replaces all of a.py, which is too large to compare (1.2 MB, 200,001 lines)" in said


@pytest.mark.sweep
def test_a_new_file_that_is_large_is_shown_whole(tmp_path: Path) -> None:
    said = shown(tmp_path, "write_file", path="a.py", content=FAR)
    assert "write_file a.py (new file)" in said
    assert "+ last = 1" in said


@pytest.mark.parametrize(
    ("held", "name", "arguments"),
    [
        (b"one\r\ntwo\n", "write_file", {"content": "one\ntwo\n"}),
        (b"caf\xc3\xa9 \xff\n", "write_file", {"content": "caf\xe9 \ufffd\n"}),
    ],
)
def test_a_change_that_does_not_show_in_the_texts_is_not_called_none(
    tmp_path: Path, held: bytes, name: str, arguments: dict[str, Any]
) -> None:
    (tmp_path / "a.txt").write_bytes(held)
    said = shown(tmp_path, name, path="a.txt", **arguments)
    assert "no change" not in said
    assert "+ " in said
    assert "the change is not visible as text (line ends, or bytes that are not text)" in said


def test_another_secret_instead_of_one_is_shown_as_a_change(tmp_path: Path) -> None:
    old, new = "sk-ant-api03-" + "a" * 40, "sk-ant-api03-" + "b" * 40
    redactor = Redactor([old, new])
    (tmp_path / "a.env").write_text(f"{old}\n")
    said = shown(tmp_path, "write_file", redactor, path="a.env", content=f"{new}\n")
    assert "no change" not in redactor.redact(said)


def test_a_write_of_the_same_text_is_not_a_change(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    assert "no change" in shown(tmp_path, "write_file", path="a.txt", content="one\ntwo\n")
