"""The table of names that programs run by themselves."""

from __future__ import annotations

import pytest

from swink_agent.sandbox import NAMES, Name
from swink_agent.sandbox.names import PROTECTED_NAMES, row_of


@pytest.mark.table
@pytest.mark.parametrize("place", ["", "deep/inside/"])
@pytest.mark.parametrize("row", NAMES, ids=lambda row: row.name)
def test_every_name_is_found_at_any_depth_with_what_is_in_it(row: Name, place: str) -> None:
    name = row.name.replace("*", ".local")
    for path in (f"{place}{name}", f"{place}{name}/inside".upper()):
        assert row_of(path.split("/")) is row


@pytest.mark.table
@pytest.mark.parametrize(
    "path", ["", "src/main.py", ".git/HEAD", ".hg", ".claude/notes.md", "vimrc", "x.vimrc", ".vscodes"]
)
def test_other_names_are_left_alone(path: str) -> None:
    assert row_of(path.split("/")) is None


def test_each_name_is_relative_and_is_listed_once() -> None:
    names = [row.name for row in NAMES]
    assert len(set(names)) == len(names)
    assert not [name for name in names if name.startswith("/") or ".." in name.split("/")]
    assert all(row.program and row.when for row in NAMES)


def test_a_name_that_runs_without_a_question_is_protected() -> None:
    git = {".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir"}
    others = {".hg/hgrc", ".hg/sharedpath", ".jj/repo/config.toml", ".vimrc", ".gvimrc", ".exrc"}
    assert set(PROTECTED_NAMES) == git | others | {".vscode", ".idea", ".swink"}
