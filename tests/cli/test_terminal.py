"""`swink -p` at a terminal: live lines, questions, keys."""

from __future__ import annotations

import re
from typing import Any

import pytest

from swink_agent.testing import FakeProvider, FakeReply

READ = FakeReply(calls=[("read_file", {"path": "a.txt"})])
WRITE = FakeReply(calls=[("write_file", {"path": "new.txt", "content": "one\ntwo\n"})])
HOSTILE = FakeReply(calls=[("write_file", {"path": "a\u202etxt.sh", "content": "\x1b[2J\x1b]52;c;aGk=\x07curl evil"})])
FILES = ("--tools", "read_file,write_file")


async def test_tool_lines_are_live_and_the_answer_is_plain_text(terminal: Any, swink: Any) -> None:
    (swink.folder / "a.txt").write_text("hello\n")
    answer = "Done.\x1b]52;c;ZXZpbA==\x07 \u202e A new line:\n\tend"
    async with FakeProvider("anthropic", [READ, answer]) as provider:
        swink.use(provider)
        await terminal.start("-p", "x", *FILES, anew=True)
        await terminal.expect("waiting for the model …")
        assert await terminal.finish() == 0
    assert "\x1b[32m✓\x1b[0m read_file a.txt" in terminal.shown
    kept = [line for line in terminal.lines if line]
    assert kept[0].startswith("✓ read_file a.txt ")
    assert [line.expandtabs() for line in kept[1:3]] == [
        "Done.\\u{1b}]52;c;ZXZpbA==\\u{7} \\u{202e} A new line:",
        "        end",
    ]
    assert kept[3].startswith('note: to continue later: swink -p "…" --resume 20')


async def test_no_colour_means_no_colour(terminal: Any, swink: Any) -> None:
    (swink.folder / "a.txt").write_text("hello\n")
    async with FakeProvider("anthropic", [READ, WRITE, "Done."]) as provider:
        swink.use(provider)
        await terminal.start("-p", "x", *FILES, environ={"NO_COLOR": "1"})
        await terminal.expect("all:")
        terminal.type("y")
        assert await terminal.finish() == 0
    assert "✓ read_file a.txt" in terminal.shown
    assert "│+ one" in terminal.shown
    assert re.search(r"\x1b\[[0-9;]*m", terminal.shown) is None


async def test_a_person_is_asked_and_only_a_yes_after_the_question_is_one(terminal: Any, swink: Any) -> None:
    async with FakeProvider("anthropic", [WRITE, WRITE, "Done."]) as provider:
        swink.use(provider)
        await terminal.start("-p", "x", *FILES)
        terminal.type("yyyy")  # before there is a question
        await terminal.expect("write_file new.txt")
        await terminal.expect("+ one")
        await terminal.expect("Run it? [y]es, [n]o, no [b]ecause …, every [t]ime write_file,")
        await terminal.expect("  always in this project, [k]ept: write_file")
        await terminal.expect("  [v]iew all:")
        terminal.type("\r \x1b[A")  # none of these is an answer
        terminal.type("n")
        await terminal.expect("n\r\n")
        assert not (swink.folder / "new.txt").exists()
        await terminal.expect("Run it?")
        terminal.type("v")
        await terminal.expect("Run it?")
        terminal.type("y")
        assert await terminal.finish() == 0
    assert (swink.folder / "new.txt").read_text() == "one\ntwo\n"
    assert "the user said no" in str(provider.bodies[1]["messages"])
    assert terminal.left_settings == terminal.settings


async def test_trust_lasts_for_the_session(terminal: Any, swink: Any) -> None:
    other = FakeReply(calls=[("write_file", {"path": "other.txt", "content": "x"})])
    async with FakeProvider("anthropic", [WRITE, other, "Done."]) as provider:
        swink.use(provider)
        await terminal.start("-p", "x", *FILES)
        await terminal.expect("Run it?")
        terminal.type("t")
        assert await terminal.finish() == 0
    assert terminal.shown.count("Run it?") == 1
    assert (swink.folder / "other.txt").exists()


@pytest.mark.sweep
async def test_a_question_cannot_be_forged_with_control_characters(terminal: Any, swink: Any) -> None:
    async with FakeProvider("anthropic", [HOSTILE, "Done."]) as provider:
        swink.use(provider)
        await terminal.start("-p", "x", *FILES)
        await terminal.expect("Run it?")
        terminal.type("n")
        assert await terminal.finish() == 0
    for forbidden in ("\x1b[2J", "\x1b]", "\x07", "\u202e"):
        assert forbidden not in terminal.shown
    assert "\\u{1b}[2J\\u{1b}]52;c;aGk=\\u{7}curl evil" in terminal.shown
    assert "! it holds characters that do not show" in terminal.shown


@pytest.mark.sweep
async def test_a_long_diff_leaves_the_path_and_the_question_in_the_window(terminal: Any, swink: Any) -> None:
    old = "".join(f"line {number}\n" for number in range(300))
    (swink.folder / "long.txt").write_text(old)
    read = FakeReply(calls=[("read_file", {"path": "long.txt"})])
    new = old.replace("line 7\n", "line seven\n").replace("line 250\n", "") + "more\n" * 40
    write = FakeReply(calls=[("write_file", {"path": "long.txt", "content": new})])
    terminal.resize(20, 60)
    async with FakeProvider("anthropic", [read, write, "Done."]) as provider:
        swink.use(provider)
        await terminal.start("-p", "x", *FILES)
        await terminal.expect("all:")
        seen = terminal.window.rows[-20:]
        assert "\x1b[31m│- line 7\x1b[0m" in terminal.shown
        assert "\x1b[32m│+ line seven\x1b[0m" in terminal.shown
        terminal.type("v")
        await terminal.expect("more rows (space: on, q: back)")
        terminal.type(" ")
        await terminal.expect("more rows")
        terminal.type("q")
        await terminal.expect("all:")
        again = terminal.window.rows[-18:]
        terminal.type("y")
        assert await terminal.finish() == 0
    for rows in (seen, again):
        assert "◆ write_file long.txt" in rows
        assert "│- line 7" in rows
        assert "│+ line seven" in rows
        assert sum(row.startswith("  … ") and row.endswith("more lines (v shows all)") for row in rows) == 1
        assert rows[-5:] == [
            "  · write_file needs approval",
            "Run it? [y]es, [n]o, no [b]ecause …,",
            "  every [t]ime write_file,",
            "  always in this project, [k]ept: write_file",
            "  [v]iew all:",
        ]
    assert terminal.window.wrapped == []
    assert (swink.folder / "long.txt").read_text() == new


@pytest.mark.sweep
async def test_a_wrong_key_is_told_which_there_are_in_its_place(terminal: Any, swink: Any) -> None:
    async with FakeProvider("anthropic", [WRITE, "Done."]) as provider:
        swink.use(provider)
        await terminal.start("-p", "x", *FILES)
        await terminal.expect("all:")
        for key in ("x", "7", "\r"):
            terminal.type(key)
            await terminal.expect("all:")
        rows = terminal.window.rows
        terminal.type("yes please")
        await terminal.expect("A key, not a text: y, n, b, t, k or v")
        await terminal.expect("all:")
        terminal.type("n")
        assert await terminal.finish() == 0
    assert "  ! x? Press y, n, b, t, k or v" in terminal.shown
    assert [row for row in rows if "Press" in row] == ["  ! Press y, n, b, t, k or v"], "in one place"
    assert sum(row.startswith("Run it?") for row in rows) == 1
    assert not (swink.folder / "new.txt").exists()


async def test_a_no_may_say_why_and_the_model_reads_it(terminal: Any, swink: Any) -> None:
    async with FakeProvider("anthropic", [WRITE, WRITE, "Done."]) as provider:
        swink.use(provider)
        await terminal.start("-p", "x", *FILES)
        await terminal.expect("all:")
        terminal.type("b")
        await terminal.expect("No, because: ")
        terminal.type("the name is\x7f\x7f\x7f wrong\n")
        await terminal.expect("all:")
        terminal.type("no, because two lines are too many\n")
        assert await terminal.finish() == 0
    assert "the user said no, because the name wrong" in str(provider.bodies[1]["messages"])
    assert "the user said no, because two lines are too many" in str(provider.bodies[2]["messages"])
    assert not (swink.folder / "new.txt").exists()
    assert terminal.left_settings == terminal.settings


@pytest.mark.sweep
async def test_a_question_is_asked_again_in_a_window_of_another_size(terminal: Any, swink: Any) -> None:
    async with FakeProvider("anthropic", [WRITE, "Done."]) as provider:
        swink.use(provider)
        await terminal.start("-p", "x", *FILES)
        await terminal.expect("[v]iew all:")
        terminal.resize(24, 30)
        await terminal.expect("  every [t]ime write_file,")
        await terminal.expect("all:")
        terminal.type("y")
        assert await terminal.finish() == 0
    assert (swink.folder / "new.txt").exists()


SLOW = FakeReply(
    text="I run the tests.\n✓ bash rm -rf / 1 ms",
    calls=[
        ("bash", {"command": "echo first; sleep 1.2; echo 日本語 second; sleep 0.3; echo 'E  assert 1 == 2'; exit 3"})
    ],
)


async def test_a_running_command_is_followed_and_a_failed_one_shows_its_last_lines(terminal: Any, swink: Any) -> None:
    terminal.resize(24, 70)
    async with FakeProvider("anthropic", [SLOW, "Done."]) as provider:
        swink.use(provider)
        await terminal.start("-p", "x", "--approve", "all", "--sandbox", "off")
        await terminal.expect("│ first")
        await terminal.expect(" … 1 s │ ")
        assert await terminal.finish() == 0
    window = terminal.window
    rows = [row for row in window.rows if row]
    assert rows[:2] == ["» I run the tests.", "» ✓ bash rm -rf / 1 ms"]
    assert rows[2].startswith("✗ bash echo first; sleep 1.2")
    assert rows[2].endswith(" s exit code 3")
    assert rows[3:] == ["  │ first", "  │ 日本語 second", "  │ E  assert 1 == 2", "Done.", *rows[7:]]
    assert rows[7] == "note: to continue later:"
    assert rows[8].startswith('  swink -p "…" --resume ')
    assert window.wrapped == []


@pytest.mark.sweep
async def test_words_between_calls_are_not_part_of_a_piped_answer(terminal: Any, swink: Any, tmp_path: Any) -> None:
    (swink.folder / "a.txt").write_text("hello\n")
    said = FakeReply(text="I look first.", calls=[("read_file", {"path": "a.txt"})])
    answer = tmp_path / "answer"
    async with FakeProvider("anthropic", [said, "Done."]) as provider:
        swink.use(provider)
        with answer.open("w") as stdout:
            await terminal.start("-p", "x", *FILES, stdout=stdout.fileno())
            assert await terminal.finish() == 0
    assert answer.read_text() == "Done.\n"
    assert next(row for row in terminal.window.rows if row) == "» I look first."


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, pytest.param({"TERM": ""}, marks=pytest.mark.sweep)])
async def test_a_terminal_that_can_take_nothing_back_gets_plain_lines(
    terminal: Any, swink: Any, environ: dict[str, str]
) -> None:
    (swink.folder / "a.txt").write_text("hello\n")
    async with FakeProvider("anthropic", [READ, WRITE, "Done."]) as provider:
        swink.use(provider)
        await terminal.start("-p", "x", *FILES, environ=environ)
        await terminal.expect("all:")
        terminal.type("x")
        await terminal.expect("x? Press y, n")
        await terminal.expect("all:")
        terminal.type("y")
        assert await terminal.finish() == 0
    assert "\x1b" not in terminal.shown
    assert "waiting" not in terminal.shown
    assert "✓ read_file a.txt" in terminal.shown
    assert (swink.folder / "new.txt").exists()


async def test_ctrl_c_at_a_question_ends_it_cleanly_and_gives_the_terminal_back(terminal: Any, swink: Any) -> None:
    async with FakeProvider("anthropic", [WRITE, "never"]) as provider:
        swink.use(provider)
        await terminal.start("-p", "x", *FILES, anew=True)
        await terminal.expect("Run it?")
        terminal.type("\x03")
        assert await terminal.finish() == 130, terminal.shown
    assert not (swink.folder / "new.txt").exists()
    assert terminal.left_settings == terminal.settings
    assert "Traceback" not in terminal.shown
    assert terminal.lines[-3] == "error: interrupted"
    assert terminal.lines[-2].startswith("note: to continue later: swink -p --resume ")
    assert provider.replies == ["never"]


async def test_a_key_is_typed_without_being_shown(terminal: Any, swink: Any) -> None:
    key = "typed-key-of-the-tests-" + "0" * 8
    await terminal.start("keys", "set", "anthropic", "--store", "file")
    await terminal.expect("Key of anthropic: ")
    terminal.type(key + "\n")
    assert await terminal.finish() == 0
    assert key not in terminal.shown
    assert key in (swink.home / "config" / "keys.json").read_text()


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(("keys", "code"), [("y\n", 0), ("\n", 1), ("\x03", 130)])
async def test_trust_is_asked_for_after_the_files_were_shown(terminal: Any, swink: Any, keys: str, code: int) -> None:
    (swink.folder / "AGENTS.md").write_text("Always say please.\n")
    await terminal.start("config", "trust", anew=True)
    await terminal.expect("│ Always say please.")
    await terminal.expect("[y/N]")
    terminal.type(keys)
    assert await terminal.finish() == code, terminal.shown
    assert "Traceback" not in terminal.shown
    trusted = (swink.home / "config" / "trusted.json").exists()
    assert trusted == (code == 0)


async def test_a_prompt_is_typed_up_to_ctrl_d_and_ctrl_c_ends_the_typing(terminal: Any, swink: Any) -> None:
    async with FakeProvider("anthropic", ["Done."]) as provider:
        swink.use(provider)
        await terminal.start("-p", "-", "--tools", "none")
        await terminal.expect("type the prompt; Ctrl+D on an empty line ends it")
        terminal.type("One line.\nAnother.\n\x04")
        assert await terminal.finish() == 0
        [message] = provider.bodies[0]["messages"]
        assert message["content"][0]["text"].rstrip() == "One line.\nAnother."
        terminal = type(terminal)(swink)
        await terminal.start("-p", "-", "--tools", "none")
        await terminal.expect("Ctrl+D on an empty line ends it")
        terminal.type("half a line\x03")
        assert await terminal.finish() == 130
    assert len(provider.bodies) == 1
