"""The acceptance criteria 16 to 30 as a person would check them: the real program in a real terminal.

Five of them run in every test run; the others are slow, and run in the sweep.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from .conftest import Program, SpokenModel, needs_tmux

pytestmark = needs_tmux
OLD = "".join([f"line {number}\n" for number in range(1, 9)])


def status_of(screen: str) -> str:
    """The last row with something in it."""
    return [row for row in screen.splitlines() if row.strip()][-1]


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


# -- 16: a reply shows as it comes -----------------------------------------------------------------------------


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
async def test_a_delegate_shows_its_progress_and_cost_under_its_call(program: Program) -> None:
    (program.folder / "a.txt").write_text("forty-two\n")
    async with SpokenModel() as model:
        program.use(model)
        await program.start()
        await program.send("What does a.txt say?")
        await model.asked()
        model.call("task", prompt="Read a.txt.")
        model.finish()
        await program.terminal.until("▸ 0 calls · thinking")
        await model.asked(2)
        model.call("read_file", path="a.txt")
        model.finish()
        await program.terminal.until("▸ 1 call · 1.0k tokens · $0.0032 · thinking")
        await program.terminal.until("2.0k tokens · $0.0063")  # what the delegate used counts in the status line
        await model.asked(3)
        model.reply("It says forty-two.")
        await model.asked(4)
        model.reply("Forty-two.")
        screen = await program.terminal.until("idle")
        assert "read_file" not in screen
        program.terminal.press("F2")
        await program.terminal.until("✓ read_file a.txt")


# -- 17: several lines, and Enter ------------------------------------------------------------------------------


@pytest.mark.sweep
async def test_several_lines_are_typed_and_enter_sends_them(program: Program) -> None:
    async with SpokenModel() as model:
        program.use(model)
        await program.start()
        terminal = program.terminal
        terminal.type("one")
        terminal.press("C-j")
        terminal.type("two")
        terminal.press("M-Enter")  # ESC CR, as terminals without the kitty protocol send it
        terminal.type("three")
        await terminal.until("three")
        assert model.bodies == []
        terminal.press("Enter")
        body = await model.asked()
        assert "one\ntwo\nthree" in str(body["messages"][-1]["content"][0]["text"])
        model.reply("Done.")
        await terminal.until("Done.")


@pytest.mark.sweep
async def test_a_paste_never_sends_and_a_long_one_is_folded(program: Program) -> None:
    pasted = "\n".join([f"pasted {number}" for number in range(30)]) + "\n"
    async with SpokenModel() as model:
        program.use(model)
        await program.start()
        terminal = program.terminal
        terminal.paste(pasted)
        screen = await terminal.until("30 lines")
        assert "pasted 12" not in screen
        terminal.press("C-o")
        await terminal.until("pasted 29")
        terminal.press("Enter")
        body = await model.asked()
        assert "pasted 0\npasted 1\n" in str(body["messages"][-1]["content"][0]["text"])
        model.reply("Long.")
        await terminal.until("Long.")


# -- 18: stopping ----------------------------------------------------------------------------------------------


@pytest.mark.sweep
async def test_escape_stops_the_run_and_the_state_stays_until_the_next_prompt(program: Program) -> None:
    async with SpokenModel() as model:
        program.use(model)
        await program.start()
        for number, key in enumerate(("Escape", "C-c"), 1):
            await program.send(f"Begin {number}")
            await model.asked(number)
            model.say(f"Endless words {number}")
            await program.terminal.until(f"Endless words {number}")
            program.terminal.press(key)
            screen = await program.terminal.until("aborted")
            assert "aborted" in status_of(screen)
        await program.terminal.until(lambda _: model.left == 2)
        await program.send("Again")
        await model.asked(3)
        await program.terminal.until("running")
        model.reply("Here I am.")
        screen = await program.terminal.until("Here I am.")
        await program.terminal.until(lambda now: "idle" in status_of(now))


# -- 19: tools -------------------------------------------------------------------------------------------------


@pytest.mark.sweep
async def test_running_tools_show_with_their_output_and_then_their_results(program: Program) -> None:
    (program.folder / "gate").mkdir()
    async with SpokenModel() as model:
        program.use(model)
        await program.start("--approve", "all")
        await program.send("Run it")
        await model.asked()
        model.call("bash", command="echo half way; while [ ! -e gate/open ]; do sleep 0.05; done; echo all of it")
        model.finish()
        screen = await program.terminal.until("half way")
        assert "bash" in screen
        assert "running" in status_of(screen)
        (program.folder / "gate" / "open").touch()
        await model.asked(2)
        screen = await program.terminal.until("all of it")
        model.reply("It ran.")
        await program.terminal.until("It ran.")


# -- 20: other sizes -------------------------------------------------------------------------------------------


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


# -- 21, 22: diffs ---------------------------------------------------------------------------------------------


async def edited(program: Program, model: SpokenModel) -> None:
    """Leads to the question about a change of code.py."""
    (program.folder / "code.py").write_text("def add(a, b):\n    return a - b\n")
    await program.send("Mend it")
    await model.asked()
    model.call("read_file", path="code.py")
    model.finish()
    await model.asked(2)
    model.call("edit_file", path="code.py", edits=[{"old": "return a - b", "new": "return a + b"}])
    model.finish()


@pytest.mark.sweep
async def test_a_change_is_shown_as_a_highlighted_unified_diff(program: Program) -> None:
    async with SpokenModel() as model:
        program.use(model)
        await program.start(columns=100)
        await edited(program, model)
        screen = await program.terminal.until(lambda now: "return a - b" in now and "return a + b" in now)
        rows = screen.splitlines()
        assert any(re.search(r"-\s*return a - b", row) for row in rows), screen
        assert any(re.search(r"\+\s*return a \+ b", row) for row in rows), screen
        await asyncio.sleep(1)  # longer than the grace in which no key counts
        program.terminal.press("y")
        await model.asked(3)
        model.reply("Mended.")
        await program.terminal.until("Mended.")
        styled = program.terminal.screen(styled=True)
        kept = next(row for row in styled.splitlines() if "return" in row and "a + b" in re.sub("\x1b[^m]*m", "", row))
        assert len(set(re.findall("\x1b\\[[^m]*38;2[^m]*m", kept))) > 1, "keyword and names have colours of their own"
    assert (program.folder / "code.py").read_text() == "def add(a, b):\n    return a + b\n"


@pytest.mark.sweep
async def test_a_wide_window_shows_both_sides(program: Program) -> None:
    async with SpokenModel() as model:
        program.use(model)
        await program.start("--approve", "all", columns=180)
        await edited(program, model)
        await model.asked(3)
        model.say("Mended.")
        screen = await program.terminal.until("Mended.")
        assert any("return a - b" in row and "return a + b" in row for row in screen.splitlines()), screen
        model.finish()
        await program.terminal.until("idle")


# -- 23: the gauge ---------------------------------------------------------------------------------------------


@pytest.mark.sweep
async def test_the_gauge_fills_and_changes_its_colour(program: Program) -> None:
    colours: list[str] = []
    async with SpokenModel() as model:
        program.use(model)
        await program.start(environ={"SWINK_CONTEXT_WINDOW": "8000"})
        for number, (size, least, most) in enumerate([(10, 0, 59), (12_500, 60, 85), (8_000, 86, 100)], 1):
            await program.send(f"Prompt {number}")
            await model.asked(number)
            model.reply("x" * size)
            await program.terminal.until(lambda now: "idle" in status_of(now))

            def percent(now: str) -> int:
                found = re.search(r"(\d+)%", status_of(now))
                return int(found[1]) if found else -1

            await program.terminal.until(lambda now, least=least, most=most: least <= percent(now) <= most)
            status = status_of(program.terminal.screen(styled=True))
            found = re.search("\x1b\\[([^m]*)m[^\x1b]*\\d+%", status)
            assert found is not None, repr(status)
            colours.append(found[1])
    assert len(set(colours)) == 3, colours


# -- 24, 25: the editor ----------------------------------------------------------------------------------------


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
async def test_an_empty_file_or_a_failing_editor_sends_nothing(program: Program) -> None:
    empty = script(program.home / "empty", ': > "$1"')
    failing = script(program.home / "failing", 'echo words > "$1"; exit 3')
    async with SpokenModel() as model:
        program.use(model)
        for editor in (empty, failing):
            await program.start(environ={"EDITOR": str(editor)})
            await program.send("/editor")
            await program.terminal.until("nothing was sent")
            await program.send("And now this")
            body = await model.asked()
            assert "And now this" in str(body["messages"][-1])
            assert "words" not in str(body["messages"])
            model.reply("Fine.")
            await program.terminal.until("Fine.")
            program.terminal.close()
            model.bodies.clear()


# -- 26, 27: plans ---------------------------------------------------------------------------------------------


@pytest.mark.sweep
async def test_plan_mode_has_only_tools_that_read_and_its_output_has_a_label(program: Program) -> None:
    async with SpokenModel() as model:
        program.use(model)
        await program.start()
        terminal = program.terminal
        terminal.press("BTab")
        await terminal.until(lambda now: "Plan" in status_of(now))
        await program.send("What would you do?")
        body = await model.asked()
        names = {tool["name"] for tool in body["tools"]}
        assert "read_file" in names
        assert not names & {"write_file", "edit_file", "bash"}
        model.reply("1. Write the file.")
        screen = await terminal.until("1. Write the file.")
        assert "PLAN" in screen
        await terminal.until(lambda now: "idle" in status_of(now))
        terminal.press("BTab")
        screen = await terminal.until("carry")
        assert "1. Write the file." in screen, "what is asked about can be read while it is asked"
        assert "idle" in status_of(screen)
        terminal.press("Enter")
        body = await model.asked(2)
        assert {"write_file", "edit_file", "bash"} <= {tool["name"] for tool in body["tools"]}
        model.reply("Written.")
        await terminal.until("Written.")
        assert "Execute" in status_of(terminal.screen())


@pytest.mark.sweep
async def test_a_plan_need_not_be_carried_out(program: Program) -> None:
    async with SpokenModel() as model:
        program.use(model)
        await program.start()
        terminal = program.terminal
        await program.send("/plan")
        await terminal.until(lambda now: "Plan" in status_of(now))
        await program.send("Plan")
        await model.asked()
        model.reply("My plan.")
        await terminal.until("My plan.")
        await terminal.until(lambda now: "idle" in status_of(now))
        terminal.press("BTab")
        await terminal.until("carry")
        terminal.press("Escape")
        await terminal.until(lambda now: "Execute" in status_of(now) and "carry" not in now)
    assert len(model.bodies) == 1


# -- 28: folding -----------------------------------------------------------------------------------------------


@pytest.mark.sweep
async def test_a_tool_block_folds_by_itself_and_opens_by_hand(program: Program) -> None:
    (program.folder / "a.txt").write_text("first line\nsecond line\nthird line\n")
    async with SpokenModel() as model:
        program.use(model)
        await program.start()
        terminal = program.terminal
        await program.send("Read it")
        await model.asked()
        model.call("read_file", path="a.txt")
        model.finish()
        await model.asked(2)
        await terminal.until("third line")
        model.reply("Read.")
        screen = await terminal.until(lambda now: "third line" not in now and "first line" in now)
        row = next(row for row in screen.splitlines() if "read_file" in row)
        assert "a.txt" in row
        assert "first line" in row
        assert "✓" in row
        terminal.press("S-Left")
        terminal.press("F2")
        await terminal.until("third line")
        terminal.press("F2")
        await terminal.until_gone("third line")


# -- 29, 30: approval ------------------------------------------------------------------------------------------


@pytest.mark.sweep
async def test_only_what_needs_approval_is_asked_about_and_trust_lasts(program: Program) -> None:
    (program.folder / "a.txt").write_text("hello\n")
    async with SpokenModel() as model:
        program.use(model)
        await program.start()
        terminal = program.terminal
        await program.send("Go")
        await model.asked()
        model.call("read_file", path="a.txt")
        model.finish()
        await model.asked(2)  # reading was not asked about
        model.call("write_file", path="b.txt", content="one\n")
        model.finish()
        await terminal.until("b.txt")
        await terminal.until(lambda now: "once" in now.lower())
        assert not (program.folder / "b.txt").exists()
        await asyncio.sleep(1)  # longer than the grace in which no key counts
        terminal.press("2")  # every call of this tool in this session
        await model.asked(3)
        model.call("write_file", path="c.txt", content="two\n")
        model.finish()
        await model.asked(4)  # without a question
        model.reply("Both.")
        await terminal.until("Both.")
    assert (program.folder / "b.txt").read_text() == "one\n"
    assert (program.folder / "c.txt").read_text() == "two\n"


@pytest.mark.sweep
async def test_a_key_that_was_on_its_way_approves_nothing(program: Program) -> None:
    async with SpokenModel() as model:
        program.use(model)
        await program.start()
        await program.send("Go")
        await model.asked()
        model.call("write_file", path="b.txt", content="one\n")
        model.finish()
        screen = await program.terminal.until("b.txt")
        program.terminal.press("y")
        await asyncio.sleep(0.5)
        assert not (program.folder / "b.txt").exists() or "once" not in screen.lower()
        await program.terminal.until(lambda now: "once" in now.lower())
        program.terminal.press("5")
        program.terminal.type("use another name")
        await program.terminal.until("use another name")
        program.terminal.press("Enter")
        body = await model.asked(2)
        assert "use another name" in str(body["messages"][-1])
        model.reply("As you wish.")
        await program.terminal.until("As you wish.")
    assert not (program.folder / "b.txt").exists()


# -- leaving ---------------------------------------------------------------------------------------------------


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
async def test_leaving_is_possible_from_any_state(program: Program) -> None:
    async with SpokenModel() as model:
        program.use(model)
        await program.start()
        await program.send("Hello")
        await model.asked()
        model.say("Endless")
        await program.terminal.until("Endless")
        program.terminal.press("C-c")
        program.terminal.press("C-c")
        assert await program.terminal.until_ended() == 0
    assert "--resume" in program.terminal.screen(history=True)


@pytest.mark.sweep
async def test_typing_while_it_runs_steers_or_waits_in_line(program: Program) -> None:
    async with SpokenModel() as model:
        program.use(model)
        await program.start()
        terminal = program.terminal
        await program.send("Begin")
        await model.asked()
        model.say("Working")
        await terminal.until("Working")
        terminal.type("and afterwards this")
        terminal.press("Tab")
        await terminal.until(lambda now: "next  and afterwards this" in now)
        terminal.type("second in line")
        terminal.press("Tab")
        await terminal.until(lambda now: "next  second in line" in now)
        terminal.press("Up")  # takes the newest back
        await terminal.until(lambda now: "\u276f second in line" in now and "next  second" not in now)
        terminal.press("C-u")
        await terminal.until_gone("second in line")
        model.finish()
        body: Any = await model.asked(2)
        assert "and afterwards this" in str(body["messages"][-1])
        assert "second in line" not in str(body)
        model.reply("That too.")
        await terminal.until("That too.")


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
