"""What only a real terminal shows: the program in tmux, how it streams, changes size, lends the screen, and leaves.

Keys, texts and colours are tested at their blocks and widgets, and what crosses widgets in `test_app.py`.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import stat
from pathlib import Path

import pytest

from .conftest import Program, SpokenModel, needs_tmux

pytestmark = needs_tmux


def status_of(screen: str) -> str:
    """The last row with something in it."""
    return [row for row in screen.splitlines() if row.strip()][-1]


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


async def test_a_reply_is_drawn_while_it_streams(program: Program) -> None:
    async with SpokenModel() as model:
        program.use(model)
        await program.start()
        await program.send("Tell me")
        await model.asked()
        model.say("The first words")
        screen = await program.terminal.until("The first words")
        assert "running" in status_of(screen)
        model.say(" and **then** the rest")
        await program.terminal.until("The first words and then the rest")
        model.finish()
        screen = await program.terminal.until("idle")
    assert "the rest▌" not in screen, "the cursor of a reply that has ended is gone"
    assert "Execute" in status_of(screen)


@pytest.mark.sweep
async def test_another_size_lays_everything_out_again(program: Program) -> None:
    words = " ".join([f"word{number}" for number in range(60)])
    async with SpokenModel() as model:
        program.use(model)
        await program.start(columns=120, rows=30)
        await program.send("Write")
        await model.asked()
        model.reply(words)
        screen = await program.terminal.until(lambda now: "word59" in now and "idle" in status_of(now))
        for columns, rows in ((60, 20), (200, 40), (80, 24)):
            program.terminal.resize(columns, rows)
            screen = await program.terminal.until(
                lambda now, rows=rows: len(now.splitlines()) == rows and "word59" in now and "Execute" in status_of(now)
            )
            assert max(len(row) for row in screen.splitlines()) <= columns
            assert "word0" in screen
            assert "idle" in status_of(screen)


async def test_the_editor_s_text_is_sent_when_it_closes(program: Program) -> None:
    editor = script(program.home / "editor", 'echo "typed in $1" > "$2"')
    async with SpokenModel() as model:
        program.use(model)
        await program.start(environ={"VISUAL": f"{editor} --fast", "EDITOR": "false"})
        await program.send("/editor")
        body = await model.asked()
        assert body["messages"][-1]["content"][0]["text"].strip() == "typed in --fast"
        model.reply("Read.")
        await program.terminal.until("Read.")
        assert program.terminal.is_alternate


@pytest.mark.sweep
async def test_a_run_goes_on_while_the_editor_is_open(program: Program) -> None:
    opened, close = program.home / "opened", program.home / "close"  # an editor does not start in the folder
    wait = f'trap "" INT; touch "{opened}"; while [ ! -e "{close}" ]; do sleep 0.02; done; echo "typed" > "$1"'
    editor = script(program.home / "editor", wait)
    async with SpokenModel() as model:
        program.use(model)
        await program.start(environ={"VISUAL": str(editor)})
        await program.send("Go on")
        await model.asked()
        await program.send("/editor")
        await program.terminal.until(lambda _: opened.exists())
        model.call("read_file", path="a.txt")
        model.finish()
        await model.asked(2)  # the call has run
        program.terminal.press("C-c")  # which is the editor's, if anybody's
        model.say("Meanwhile.")
        close.touch()
        await program.terminal.until("Meanwhile.")
        await program.terminal.until("typed")
        model.finish()
        body = await model.asked(3)
        assert "typed" in str(body["messages"][-1])
        model.reply("Read.")
        await program.terminal.until("Read.")


@pytest.mark.sweep
async def test_an_editor_that_is_not_there_is_told_and_the_screen_is_back(program: Program) -> None:
    async with SpokenModel() as model:
        program.use(model)
        await program.start(environ={"VISUAL": "no-such-editor"})
        await program.send("/editor")
        await program.terminal.until("no-such-editor")
        await program.send("And now this")
        await model.asked()
        model.reply("Fine.")
        await program.terminal.until("Fine.")


@pytest.mark.sweep
async def test_the_terminal_is_as_it_was_with_the_answer_and_how_to_go_on(program: Program) -> None:
    async with SpokenModel() as model:
        program.use(model)
        await program.start(shell=True)
        terminal = program.terminal
        await program.send("Hello")
        await model.asked()
        model.reply("The last answer.")
        await terminal.until("The last answer.")
        await terminal.until(lambda now: "idle" in status_of(now))
        terminal.press("C-q")
        screen = await terminal.until(lambda now: now.rstrip().endswith("$"))
        assert "The last answer." in screen
        found = re.search(r"swink.* --resume (\S+)", screen)
        assert found is not None
        assert not terminal.is_alternate
        terminal.type("stty -a | tr ';' '\\n' | grep -c -- -echo\\ ")
        terminal.press("Enter")
        await terminal.until(lambda now: now.rstrip().endswith("$") and "\n0\n" in now)


async def test_a_signal_leaves_the_terminal_as_it_was(program: Program) -> None:
    async with SpokenModel() as model:
        program.use(model)
        await program.start()
        terminal = program.terminal
        await program.send("Hello")
        await model.asked()
        model.reply("The last answer.")
        await terminal.until("The last answer.")
        await terminal.until(lambda now: "idle" in status_of(now))
        os.kill(terminal.pid, signal.SIGTERM)
        assert await terminal.until_ended() == 143
    screen = terminal.screen(history=True)
    assert "The last answer." in screen
    assert "--resume" in screen
    assert not terminal.is_alternate

    def modes_left_on() -> set[str]:
        last = dict(re.findall("\x1b\\[\\?(\\d+)([hl])", terminal.raw))  # of each mode how it was left
        return {mode for mode, way in last.items() if way == "h"}

    async with asyncio.timeout(30):
        while modes_left_on() != {"7", "25"}:  # noqa: ASYNC110 - what it wrote last is still on its way to the file
            await asyncio.sleep(0.05)
    assert modes_left_on() == {"7", "25"}, "lines wrap and the cursor shows"


@pytest.mark.sweep
async def test_control_z_gives_the_shell_and_fg_brings_the_whole_screen_back(program: Program) -> None:
    async with SpokenModel() as model:
        program.use(model)
        await program.start(shell=True)
        terminal = program.terminal
        await program.send("Stay here")
        await model.asked()
        model.reply("Here I stay.")
        await terminal.until(lambda now: "Here I stay." in now and "idle" in status_of(now))
        terminal.press("C-z")
        await terminal.until(lambda screen: "Stopped" in screen and not terminal.is_alternate)
        terminal.type("fg")
        terminal.press("Enter")
        await terminal.until(lambda screen: "Here I stay." in screen and "Execute · idle" in screen)
        assert terminal.is_alternate
