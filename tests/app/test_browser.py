"""Opening an address in the user's browser."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from swink_agent.app.agent.confinement import private_folders, sandbox_profile
from swink_agent.app.browser import leading_page, open_in_browser
from swink_agent.app.settings.paths import data_folder

pytestmark = [
    pytest.mark.skipif(sys.platform == "darwin", reason="the program there has another name"),
    pytest.mark.usefixtures("no_usual_programs"),
]


@pytest.mark.parametrize(("code", "is_opened"), [(0, True), (3, False)])
def test_a_program_that_fails_opened_nothing(tmp_path: Path, code: int, is_opened: bool) -> None:
    program = tmp_path / "xdg-open"
    program.write_text(f'#!/bin/sh\necho "$1" > "{tmp_path}/opened"\nexit {code}\n')
    program.chmod(0o755)
    assert open_in_browser("http://127.0.0.1:1/", {"PATH": str(tmp_path)}, []) is is_opened
    assert (tmp_path / "opened").read_text() == "http://127.0.0.1:1/\n"


def test_without_a_program_nothing_is_opened(tmp_path: Path) -> None:
    assert open_in_browser("http://127.0.0.1:1/", {"PATH": str(tmp_path)}, []) is False


def test_a_leading_page_is_the_users_alone_and_goes_away(tmp_path: Path) -> None:
    (tmp_path / "browser").mkdir(mode=0o755)
    with leading_page('http://127.0.0.1:1/?code=a"b&c', tmp_path, "web-1") as page:
        assert stat.S_IMODE(page.stat().st_mode) == 0o600
        assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700
        assert 'content="0; url=http://127.0.0.1:1/?code=a&quot;b&amp;c"' in page.read_text()
    assert list(page.parent.iterdir()) == []


def test_commands_do_not_see_a_leading_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWINK_DATA_DIR", str(tmp_path / "data"))
    work = tmp_path / "work"
    work.mkdir()
    with leading_page("http://127.0.0.1:1/?code=abc", data_folder(), "web-1") as page:
        assert any(page.is_relative_to(hidden) for hidden in sandbox_profile(work).hidden)
        assert any(page.is_relative_to(hidden) for hidden in private_folders())
