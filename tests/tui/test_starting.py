"""Keys typed while the program starts are not lost: the text is in the line, in order, and Enter sends it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from swink_agent.tui.themes import THEMES

from .conftest import SpokenModel
from .test_terminal_gone import swink


def ground(name: str) -> bytes:
    colour = THEMES[name].background
    assert colour is not None
    return "48;2;{};{};{}".format(*[int(colour[at : at + 2], 16) for at in (1, 3, 5)]).encode()


LIGHT_GROUND, DARK_GROUND = ground("light"), ground("dark")


def asked_for(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"][0]["text"])


async def test_text_typed_before_the_screen_is_sent_and_later_text_is_in_the_line(tmp_path: Path) -> None:
    async with SpokenModel() as model, swink(tmp_path, model) as running:
        os.write(running.terminal, "fix thé test\rand then".encode())
        assert asked_for(await model.asked()) == "fix thé test"
        model.reply("Fixed.")
        await running.until(b"Fixed.")
        os.write(running.terminal, b" this\r")
        assert asked_for(await model.asked(2)) == "and then this"
        model.reply("Done.")
        await running.until(b"Done.")


@pytest.mark.sweep
async def test_a_paste_before_there_is_a_screen_is_one(tmp_path: Path) -> None:
    async with SpokenModel() as model, swink(tmp_path, model) as running:
        os.write(running.terminal, b"look: \x1b[200~one\ntwo\rthree\x1b[201~ ok\r")
        assert asked_for(await model.asked()) == "look: one\ntwo\nthree ok"
        model.reply("Done.")
        await running.until(b"Done.")


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(b"\x1b[?1049h", id="screen"),
        pytest.param(b"\x1b[?25l", id="cursor"),
        pytest.param(b"\x1b[?7l", id="modes"),
    ],
)
@pytest.mark.sweep
async def test_keys_at_every_moment_of_the_start_arrive_in_their_order(tmp_path: Path, seen: bytes) -> None:
    async with SpokenModel() as model, swink(tmp_path, model) as running:
        os.write(running.terminal, b"first ")
        async with asyncio.timeout(40):
            while seen not in running.drawn:  # noqa: ASYNC110 - a terminal tells nobody
                await asyncio.sleep(0)
        for letter in b"0123456789 last\r":
            os.write(running.terminal, bytes([letter]))
            await asyncio.sleep(0)
        assert asked_for(await model.asked()) == "first 0123456789 last"
        model.reply("Done.")
        await running.until(b"Done.")


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(
    ("pieces", "ground"),
    [
        pytest.param([b"\x1b]11;rgb:ffff/ffff/f0f0\x1b\\"], "light", marks=pytest.mark.sweep),
        ([b"\x1b]11;rgb:ff", b"ff/ffff/f0f0", b"\x07"], "light"),
        pytest.param([b"\x1b]11;rgb:1e1e/1e1e/2e2e\x07"], "dark", marks=pytest.mark.sweep),
        ([b"\x1b]11;none\x07"], "dark"),
        pytest.param([], "dark", marks=pytest.mark.sweep),
    ],
)
async def test_the_theme_follows_the_terminal_and_its_answer_is_not_input(
    tmp_path: Path, pieces: list[bytes], ground: str
) -> None:
    colours = {"light": LIGHT_GROUND, "dark": DARK_GROUND}
    async with SpokenModel() as model, swink(tmp_path, model, COLORTERM="truecolor") as running:
        await running.until(b"\x1b]11;?\x1b\\")
        for piece in pieces:
            os.write(running.terminal, piece)
            await asyncio.sleep(0.1)  # apart, as a slow line has them
        os.write(running.terminal, b"hello\r")
        assert asked_for(await model.asked()) == "hello"
        model.reply("A reply.")
        await running.until(b"A reply.")
        behind = running.drawn[running.drawn.index(b"A reply.") - 200 :]
        assert colours[ground] in behind
        assert colours["dark" if ground == "light" else "light"] not in behind


@pytest.mark.sweep
async def test_a_theme_that_was_set_asks_nothing(tmp_path: Path) -> None:
    async with SpokenModel() as model, swink(tmp_path, model, SWINK_THEME="dark") as running:
        await running.until(b"idle")
        assert b"\x1b]11;?" not in running.drawn
