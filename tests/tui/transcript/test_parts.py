"""Very long replies are split into parts: the view is the same, and only the visible parts are laid out."""

from __future__ import annotations

import random

import pytest

from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import AssistantMessage, Text
from swink_agent.tui.narration import Narration
from swink_agent.tui.transcript import ReplyBlock, Transcript, blocks_of, gap_before
from swink_agent.tui.transcript.line import plain
from swink_agent.tui.transcript.parts import LONG, Cutter, Piece
from swink_agent.tui.transcript.rows import Rows
from swink_agent.tui.transcript.viewport import Viewport

PARAGRAPH = "Some words of a paragraph with `code` and **weight** that are wrapped into a few rows of it. " * 3
MIXED = f"## Title\n\n{PARAGRAPH}\n\n- one\n- two\n\n  inside it\n\n```python\ndef f(x):\n\n    return x\n```\n\n"
CODE = "```python\n" + "def f(x):\n\n    return x + 1\n" * 9000 + "```\n\nAnd words.\n"
LIST = "- an item of a list\n" * 20_000
LINE = "word " * 80_000


def blocks(*deltas: str) -> list[ReplyBlock]:
    transcript = Transcript()
    narration = Narration(transcript, Redactor())
    for delta in deltas:
        narration._append("text", delta)
    narration._close_reply("")
    return [block for block in transcript.blocks if isinstance(block, ReplyBlock)]


def rows_of(replies: list[ReplyBlock], width: int) -> list[str]:
    rows: list[str] = []
    before = None
    for reply in replies:
        rows += [""] * gap_before(reply, before)
        rows += [plain(line.spans).rstrip() for line in reply.lines(width)]
        before = reply
    return rows


@pytest.mark.sweep
@pytest.mark.parametrize("text", [MIXED * 500, CODE, LIST], ids=["mixed", "code", "list"])
def test_the_parts_of_a_long_reply_look_as_the_whole(text: str) -> None:
    whole = ReplyBlock()
    whole.append_text(text)
    whole.finish()
    replies = blocks(text)
    assert len(replies) >= 3
    assert max([len(reply.answer) for reply in replies]) < 2.1 * LONG
    assert "".join([reply.answer for reply in replies]) == text
    assert rows_of(replies, 70) == [plain(line.spans).rstrip() for line in whole.lines(70)]


@pytest.mark.parametrize("longest", [pytest.param(3, marks=pytest.mark.sweep), 50, 5000])
def test_it_is_cut_in_the_same_places_whatever_the_deltas_are(longest: int) -> None:
    text = MIXED * 400 + CODE
    known = [reply.answer for reply in blocks(text)]
    some = random.Random(7)
    deltas: list[str] = []
    at = 0
    while at < len(text):
        size = some.randint(1, longest)
        deltas.append(text[at : at + size])
        at += size
    assert [reply.answer for reply in blocks(*deltas)] == known


@pytest.mark.parametrize("size", [pytest.param(7, marks=pytest.mark.sweep), 4000, len(LINE)])
def test_a_line_without_an_end_is_cut_between_words(size: int) -> None:
    cutter = Cutter()
    pieces: list[Piece] = []
    for at in range(0, len(LINE), size):
        pieces += cutter.feed(LINE[at : at + size])
    assert "".join([piece.text for piece in pieces]) == LINE
    places = [number for number, piece in enumerate(pieces) if piece.seam] + [len(pieces)]
    sizes = [
        sum([len(piece.text) for piece in pieces[start:end]]) for start, end in zip([0, *places], places, strict=False)
    ]
    assert len(sizes) >= 3
    assert max(sizes) <= 3 * LONG


def test_a_reply_of_the_usual_length_is_one_block() -> None:
    assert len(blocks(MIXED * 100)) == 1


def test_of_a_long_reply_only_what_is_in_sight_is_laid_out() -> None:
    transcript = Transcript()
    transcript.extend(blocks(MIXED * 4000))
    rows = Rows(transcript)
    window = Viewport(rows)
    rows.sync()
    window.height = 40
    for width in (99, 79):
        window.resize(width)
        window.settle()
        assert [index for index in range(rows.count) if rows._measured[index] == width] == [rows.count - 1]


def test_long_replies_of_an_earlier_conversation_have_parts_masked_as_a_whole() -> None:
    text = MIXED * 500
    made = blocks_of([AssistantMessage([Text(text)])], redact=lambda said: said.replace("paragraph", "*********"))
    assert [block.text for block in made] == [reply.answer.replace("paragraph", "*********") for reply in blocks(text)]
