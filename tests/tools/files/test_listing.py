"""A folder as a person would list it."""

from __future__ import annotations

from pathlib import Path

from swink_agent.tools.files.listing import visible_entries


def test_names_come_sorted_without_dots_and_without_what_git_ignores(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*.log\nbuild/\n")
    for name in ("b.txt", "a.log", ".hidden"):
        (tmp_path / name).touch()
    for name in ("build", "src"):
        (tmp_path / name).mkdir()
    assert visible_entries(tmp_path).entries == [("b.txt", False), ("src", True)]


def test_the_rules_of_the_repository_hold_in_its_folders(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("node_modules\n/inner/top.txt\n")
    inner = tmp_path / "inner"
    for folder in (inner, inner / "node_modules"):
        folder.mkdir()
    (inner / "top.txt").touch()
    (inner / "main.js").touch()
    assert visible_entries(inner).entries == [("main.js", False)]


def test_a_folder_that_is_not_there_lists_nothing(tmp_path: Path) -> None:
    assert visible_entries(tmp_path / "nowhere").entries == []
