"""What a write or an edit would make of a file, shown before it happens."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from swink_agent import ProposedCall, Redactor
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


def test_line_ends_of_the_file_are_no_change(preview: Any, tmp_path: Path) -> None:
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


def test_what_is_no_text_or_outside_or_no_file_is_a_note(preview: Any, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"\0\1\2")
    assert preview("write_file", path="data", content="x") == {"notes": ["the file that is there is no text"]}
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
