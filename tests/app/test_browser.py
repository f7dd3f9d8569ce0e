"""Opening an address in the user's browser."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from swink_agent.app.browser import open_in_browser

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
