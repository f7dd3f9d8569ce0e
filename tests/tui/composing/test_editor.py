"""The external editor: which one is used, its exit code, and the file that it gets."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from pathlib import Path

import pytest

from swink_agent.tui.composing.editor import EditorError, edited, editor_command


def editor(tmp_path: Path, code: str) -> str:
    """A command with an argument of its own that runs the code with `path` and `words`."""
    script = tmp_path / "an editor.py"
    script.write_text(f"import os, sys, pathlib\nwords = sys.argv[1:]\npath = pathlib.Path(words[-1])\n{code}\n")
    return f"'{sys.executable}' '{script}' --wait"


def test_visual_goes_before_editor_and_vi_is_the_last() -> None:
    assert editor_command({"VISUAL": "code --wait", "EDITOR": "ed"}) == ["code", "--wait"]
    assert editor_command({"VISUAL": "  ", "EDITOR": "'my ed' -x"}) == ["my ed", "-x"]
    assert editor_command({}) == ["vi"]
    with pytest.raises(EditorError, match=r"\$EDITOR"):
        editor_command({"EDITOR": "'open"})


async def test_text_left_in_the_file_is_taken_and_the_file_is_private_and_removed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = (
        "modes = [os.stat(place).st_mode for place in (path, path.parent)]\n"
        f"pathlib.Path({str(log)!r}).write_text(f'{{words[0]}} {{path}} {{modes[0]}} {{modes[1]}}')\n"
        "path.write_text(path.read_text() + ' and more\\n')"
    )
    assert await edited("draft é", {"EDITOR": editor(tmp_path, code)}) == "draft é and more"
    option, path, mode, folder = log.read_text().split()
    assert option == "--wait"
    assert stat.S_IMODE(int(mode)) == 0o600
    assert stat.S_IMODE(int(folder)) == 0o700
    assert not Path(path).parent.exists()


@pytest.mark.parametrize(
    "code",
    ["path.write_text('text'); sys.exit(1)", "path.write_text('')", "path.write_text(' \\n\\n')", "path.unlink()"],
    ids=["failed", "empty", "blank", "gone"],
)
async def test_a_failure_or_nothing_left_is_nothing_to_send(tmp_path: Path, code: str) -> None:
    assert await edited("draft", {"VISUAL": editor(tmp_path, code)}) is None


async def test_an_editor_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(EditorError, match="no-such-editor"):
        await edited("", {"EDITOR": "no-such-editor -w", "PATH": str(tmp_path)})


async def test_a_signal_for_the_editor_reaches_it_and_does_not_end_this_program(tmp_path: Path) -> None:
    code = (
        "import signal\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
        "os.kill(os.getppid(), signal.SIGINT)\n"
        "path.write_text('done')"
    )
    assert await edited("", {"EDITOR": editor(tmp_path, code)}) == "done"


async def test_other_work_goes_on_meanwhile_and_an_editor_that_nobody_waits_for_is_ended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = f"import time\npathlib.Path({str(log)!r}).write_text(f'{{os.getpid()}} {{path}}')\ntime.sleep(60)"
    editing = asyncio.ensure_future(edited("", {"EDITOR": editor(tmp_path, code)}))
    async with asyncio.timeout(60):
        while not (log.exists() and log.read_text()):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)
        editing.cancel()
        await asyncio.wait([editing])
    number, path = log.read_text().split()
    assert editing.cancelled()
    assert not Path(path).parent.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(number), 0)
