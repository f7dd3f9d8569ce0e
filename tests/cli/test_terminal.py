"""`swink -p` at a terminal: live lines, questions, keys."""

from __future__ import annotations

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
        await terminal.start("-p", "x", *FILES)
        await terminal.expect("waiting for the model …")
        assert await terminal.finish() == 0
    assert "\x1b[32m✓\x1b[0m read_file a.txt" in terminal.shown
    kept = [line for line in terminal.lines if line]
    assert kept[0].startswith("✓ read_file a.txt ")
    assert [line.expandtabs() for line in kept[1:]] == [
        "Done.\\u{1b}]52;c;ZXZpbA==\\u{7} \\u{202e} A new line:",
        "        end",
    ]


async def test_no_colour_means_no_colour(terminal: Any, swink: Any) -> None:
    (swink.folder / "a.txt").write_text("hello\n")
    async with FakeProvider("anthropic", [READ, "Done."]) as provider:
        swink.use(provider)
        await terminal.start("-p", "x", *FILES, environ={"NO_COLOR": "1"})
        assert await terminal.finish() == 0
    assert "✓ read_file a.txt" in terminal.shown
    assert "\x1b[3" not in terminal.shown


async def test_a_person_is_asked_and_only_a_yes_after_the_question_is_one(terminal: Any, swink: Any) -> None:
    async with FakeProvider("anthropic", [WRITE, WRITE, "Done."]) as provider:
        swink.use(provider)
        await terminal.start("-p", "x", *FILES)
        terminal.type("yyyy")  # before there is a question
        await terminal.expect("write_file new.txt")
        await terminal.expect("+ one")
        await terminal.expect("Run it? [y]es, [n]o, every [t]ime write_file, [v]iew all:")
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


async def test_ctrl_c_at_a_question_ends_it_cleanly_and_gives_the_terminal_back(terminal: Any, swink: Any) -> None:
    async with FakeProvider("anthropic", [WRITE, "never"]) as provider:
        swink.use(provider)
        await terminal.start("-p", "x", *FILES)
        await terminal.expect("Run it?")
        terminal.type("\x03")
        assert await terminal.finish() == 130, terminal.shown
    assert not (swink.folder / "new.txt").exists()
    assert terminal.left_settings == terminal.settings
    assert "Traceback" not in terminal.shown
    assert terminal.lines[-2:] == ["error: interrupted", ""]
    assert provider.replies == ["never"]


async def test_a_key_is_typed_without_being_shown(terminal: Any, swink: Any) -> None:
    key = "typed-key-of-the-tests-" + "0" * 8
    await terminal.start("keys", "set", "anthropic", "--store", "file")
    await terminal.expect("Key of anthropic: ")
    terminal.type(key + "\n")
    assert await terminal.finish() == 0
    assert key not in terminal.shown
    assert key in (swink.home / "config" / "keys.json").read_text()


@pytest.mark.parametrize(("keys", "code"), [("y\n", 0), ("\n", 1), ("\x03", 130)])
async def test_trust_is_asked_for_after_the_files_were_shown(terminal: Any, swink: Any, keys: str, code: int) -> None:
    (swink.folder / "AGENTS.md").write_text("Always say please.\n")
    await terminal.start("config", "trust")
    await terminal.expect("│ Always say please.")
    await terminal.expect("[y/N]")
    terminal.type(keys)
    assert await terminal.finish() == code, terminal.shown
    assert "Traceback" not in terminal.shown
    trusted = (swink.home / "config" / "trusted.json").exists()
    assert trusted == (code == 0)
