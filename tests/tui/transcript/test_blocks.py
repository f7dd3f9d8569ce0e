"""Blocks: prompts, replies while they stream, calls while they run, notices, and how they report changes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import ToolOutcome
from swink_agent.rendering.escaping import safe_text
from swink_agent.tui.transcript import (
    Block,
    NoticeBlock,
    ReplyBlock,
    ShellBlock,
    ToolBlock,
    Transcript,
    UserBlock,
    gap_before,
)
from swink_agent.tui.transcript.line import ORDINARY, plain, safe
from swink_agent.tui.transcript.messages import ChoiceBlock, HelpBlock

from .reading import copied_text


def drawn(block: Block, width: int = 60) -> list[str]:
    return [plain(line.spans).rstrip() for line in block.lines(width)]


# -- the list ------------------------------------------------------------------------------------------------------


def test_a_transcript_announces_blocks_that_come_change_and_go() -> None:
    transcript, told = Transcript(), []
    transcript.on_change(told.append)
    reply = ReplyBlock()
    transcript.add(reply)
    reply.append_text("hello")
    transcript.clear()
    reply.append_text("nobody hears this")
    assert told == [None, reply, None]
    assert list(transcript.blocks) == []


def test_lines_are_kept_until_the_block_changes() -> None:
    prompt = UserBlock("one")
    lines = prompt.lines(40)
    assert prompt.lines(40) is lines
    prompt.set_content("two")
    assert plain(prompt.lines(40)[0].spans).rstrip() == "\u258c two"
    before = prompt.version
    prompt.forget()
    assert prompt.version == before
    assert plain(prompt.lines(40)[0].spans).rstrip() == "\u258c two"


def test_calls_of_one_line_stand_beneath_each_other_without_a_gap() -> None:
    first, second = ToolBlock("1", "a", ""), ToolBlock("2", "b", "")
    first.finish(ToolOutcome.RAN, "", is_error=False)
    second.finish(ToolOutcome.RAN, "", is_error=False)
    assert gap_before(second, first) == 1
    first.fold()
    second.fold()
    assert gap_before(second, first) == 0
    assert gap_before(first, UserBlock("x")) == 1
    assert gap_before(first, None) == 0


# -- prompts and notices -------------------------------------------------------------------------------------------


def test_a_long_title_leaves_room_for_what_stands_behind_it() -> None:
    rows = [("F3", "a long title " * 10, "1 min, 4 messages"), ("F7", "yes", "in the sandbox, " * 10)]
    drew = drawn(ChoiceBlock("The last sessions here:", rows, print))
    assert drew[1].startswith("  F3  a long title")
    assert drew[1].endswith("…  1 min, 4 messages")
    assert drew[2].startswith("  F7  yes  in the sandbox, in the sandbox")


def test_a_prompt_stands_behind_a_bar_from_edge_to_edge() -> None:
    block = UserBlock("hello there\n\n  indented", images=["a.png"], label="follow-up")
    assert drawn(block, 30) == [
        "\u258c follow-up", "\u258c hello there", "\u258c", "\u258c   indented", "\u258c \u25a3 a.png",
    ]  # fmt: skip
    assert {len(plain(line.spans)) for line in block.lines(30)} == {30}
    assert copied_text(block.lines(9)[1:4]) == "hello there\n"


def test_a_long_prompt_is_folded_and_can_be_opened() -> None:
    block = UserBlock("\n".join([f"line {number}" for number in range(100)]))
    assert drawn(block)[-1] == "\u258c \u2026 88 more lines"
    block.toggle()
    assert len(block.lines(60)) == 100
    block.toggle()
    assert block.open()
    assert len(block.lines(60)) == 100


def test_nothing_that_somebody_wrote_reaches_the_terminal_as_a_command() -> None:
    evil = "\x1b[2J\x1b]0;x\x07 \u202etxet \x9b31m"
    tool = ToolBlock("1", evil, evil, label=evil)
    tool.begin()
    tool.hear(evil + "\n" + evil)
    running = drawn(tool)
    tool.finish(ToolOutcome.RAN, evil, is_error=False, details={"path": evil, "old": evil, "new": evil + "\n" + evil})
    reply = ReplyBlock()
    reply.append_thinking(evil)
    reply.append_text(evil)
    reply.finish("error", evil)
    shown = [*running, *drawn(tool), *drawn(reply), *drawn(UserBlock(evil, images=[evil], label=evil))]
    tool.fold()
    shown += [*drawn(tool), *drawn(NoticeBlock(evil))]
    for row in shown:
        assert row.isprintable()
        assert "\u202e" not in row


def test_ordinary_characters_are_left_alone_by_the_escaping_too() -> None:
    pairs = [ORDINARY[at : at + 3] for at in range(len(ORDINARY) - 2) if ORDINARY[at + 1] == "-"]
    ordinary = set(ORDINARY) | {chr(code) for pair in pairs for code in range(ord(pair[0]), ord(pair[2]) + 1)}
    for character in ordinary:
        assert safe(f"a{character}b") == safe_text(f"a{character}b") == f"a{character}b"


# -- replies -------------------------------------------------------------------------------------------------------


def test_a_reply_shows_its_thoughts_until_it_speaks_and_a_cursor_while_it_goes_on() -> None:
    reply = ReplyBlock()
    assert drawn(reply) == ["\u25cf \u258c"]
    reply.append_thinking("hm\n\nwell")
    assert drawn(reply) == ["\u273b thinking \u2026", "  hm", "", "  well\u258c"]
    reply.append_text("So.")
    assert drawn(reply) == ["\u25b8 thought \u00b7 2 lines", "", "\u25cf So.\u258c"]
    reply.finish()
    assert drawn(reply) == ["\u25b8 thought \u00b7 2 lines", "", "\u25cf So."]
    reply.toggle()
    assert drawn(reply) == ["\u25be thought", "  hm", "", "  well", "", "\u25cf So."]


def test_a_plan_is_marked_in_every_row() -> None:
    reply = ReplyBlock(label="PLAN")
    reply.append_text("one\n\ntwo")
    reply.finish()
    assert drawn(reply) == ["\u258c  PLAN", "\u258c one", "\u258c", "\u258c two"]
    assert copied_text(reply.lines(60)).strip() == "one\n\ntwo"


@pytest.mark.parametrize(
    ("stopped", "note", "last"),
    [
        ("aborted", "", "\u2298 stopped"),
        ("error", "too busy", "\u2717 failed: too busy"),
        ("", "cut off", "\u00b7 cut off"),
    ],
)
def test_how_a_reply_ended_is_said(stopped: str, note: str, last: str) -> None:
    reply = ReplyBlock()
    reply.append_text("I was")
    reply.finish(stopped, note)  # type: ignore[arg-type]
    assert drawn(reply) == ["\u25cf I was", "", last]


def test_a_reply_with_nothing_to_say_takes_no_room() -> None:
    reply = ReplyBlock()
    reply.finish()
    assert drawn(reply) == []


def test_the_answer_is_what_the_model_wrote() -> None:
    reply = ReplyBlock()
    reply.append_thinking("hm")
    reply.append_text("**so**\n")
    assert reply.answer == "**so**\n"
    assert "hm" in reply.text


deltas = st.lists(
    st.tuples(
        st.booleans(), st.sampled_from(["word ", "\n\n", "```\n", "x = 1\n", "- a\n", "**b** ", "| a |\n|--|\n"])
    ),
    max_size=25,
)


def test_a_paragraph_is_final_when_it_ends_and_has_no_cursor_then() -> None:
    reply = ReplyBlock()
    reply.append_text("One para\ngraph.")
    reply.lines(60)
    assert reply.final_lines == []
    reply.append_text("\n\n")
    reply.lines(60)
    assert [plain(line.spans) for line in reply.final_lines] == ["● One para graph."]


@settings(max_examples=150)
@given(deltas, st.sampled_from([20, 60]))
def test_a_reply_looks_the_same_however_often_it_was_drawn(parts: list[tuple[bool, str]], width: int) -> None:
    seen, unseen = ReplyBlock(), ReplyBlock()
    before: list[object] = []
    final: list[object] = []
    for is_thought, delta in parts:
        for reply in (seen, unseen):
            (reply.append_thinking if is_thought else reply.append_text)(delta)
        lines = list(seen.lines(width))
        assert lines[: seen.first_change] == before[: seen.first_change]
        before = lines
        assert list(seen.final_lines)[: len(final)] == final  # what is final once stays so
        final = list(seen.final_lines)
    for reply in (seen, unseen):
        reply.finish()
    assert seen.lines(width)[: len(final)] == final
    assert list(seen.lines(width)) == list(unseen.lines(width))
    seen.forget()
    assert list(seen.lines(width)) == list(unseen.lines(width))


# -- calls ---------------------------------------------------------------------------------------------------------


def test_a_call_goes_from_waiting_to_one_line() -> None:
    tool = ToolBlock("1", "bash", "make test")
    assert drawn(tool) == ["\u25cb bash make test" + " " * 37 + "waiting"]
    tool.ask()
    assert drawn(tool)[0].endswith("waits for you")
    tool.begin()
    tool.hear("one\ntw")
    tool.hear("o")
    assert tool.newest == "two"
    assert drawn(tool)[1:] == ["  \u2502 one", "  \u2502 two"]
    tool.finish(ToolOutcome.RAN, "one\ntwo\n", is_error=False, seconds=0.25)
    assert drawn(tool)[0].endswith("done 250 ms")
    assert tool.is_open
    tool.fold()
    assert [plain(line.spans) for line in tool.lines(50)] == [f"\u2713 bash make test \u2502 one{'done 250 ms':>28}"]


@pytest.mark.table
@pytest.mark.parametrize(
    ("outcome", "is_error", "status", "shown"),
    [
        (ToolOutcome.RAN, True, "failed", "\u2717 x  failed"),
        (ToolOutcome.FAILED, True, "failed", "\u2717 x  failed"),
        (ToolOutcome.INVALID, True, "failed", "\u2717 x  invalid arguments"),
        (ToolOutcome.UNKNOWN_TOOL, True, "failed", "\u2717 x  unknown tool"),
        (ToolOutcome.REJECTED, True, "rejected", "\u2298 x  rejected"),
        (ToolOutcome.SKIPPED, True, "rejected", "\u2298 x  skipped"),
        (ToolOutcome.CANCELLED, True, "cancelled", "\u2298 x  cancelled"),
        (ToolOutcome.LOST, True, "failed", "\u2717 x  outcome unknown"),
    ],
)
def test_every_outcome_has_a_badge(outcome: ToolOutcome, is_error: bool, status: str, shown: str) -> None:
    tool = ToolBlock("1", "x", "")
    tool.finish(outcome, "", is_error=is_error)
    tool.fold()
    assert tool.status == status
    assert [" ".join(row.split()) for row in drawn(tool)] == [" ".join(shown.split())]


def test_a_call_that_never_started_shows_no_time() -> None:
    tool = ToolBlock("1", "x", "")
    tool.finish(ToolOutcome.REJECTED, "", is_error=True, seconds=0.0)
    tool.fold()
    assert drawn(tool)[0].endswith(" rejected")


def test_printed_output_takes_bounded_room_and_the_rest_is_counted() -> None:
    tool = ToolBlock("1", "bash", "yes")
    tool.begin()
    for number in range(3000):
        tool.hear(f"line {number}\n" * 10)
    assert drawn(tool)[1] == "  \u2502 \u2026 29,992 earlier lines"
    assert drawn(tool)[-1] == "  \u2502 line 2999"
    assert len(tool.text) < 10_000
    tool.hear("x" * 1_000_000)
    assert len(tool.text) < 20_000


def test_a_progress_bar_is_one_line() -> None:
    tool = ToolBlock("1", "bash", "wget")
    tool.begin()
    tool.hear("10%\r20%\r")
    tool.hear("30%")
    assert drawn(tool)[1:] == ["  \u2502 30%"]


def test_a_long_result_is_short_until_it_is_opened_by_hand() -> None:
    tool = ToolBlock("1", "bash", "seq 100")
    tool.finish(ToolOutcome.RAN, "\n".join([str(number) for number in range(100)]), is_error=False)
    assert "  \u2502 \u2026 84 more lines" in drawn(tool)
    tool.fold()
    tool.toggle()
    assert len(drawn(tool)) == 101
    assert tool.opened_by_hand
    tool.fold()
    assert tool.is_open
    tool.toggle()
    assert not tool.is_open


def test_a_change_is_drawn_as_a_diff_with_numbers_and_what_changed_in_a_line() -> None:
    tool = ToolBlock("1", "edit_file", "a.py")
    details = {"path": "a.py", "old": "def f(x):\n    return x\n", "new": "def f(y):\n    return x\n"}
    tool.finish(ToolOutcome.RAN, "ok", is_error=False, details=details)
    assert drawn(tool)[1:] == [
        "  \u2502 @@ -1,2 +1,2 @@",
        "  \u2502 1 - def f(x):",
        "  \u2502 1 + def f(y):",
        "  \u2502 2       return x",
    ]
    added = tool.lines(60)[3].spans
    assert [span.text for span in added if "added.word" in span.role] == ["y"]
    assert [span.text for span in added if "code.keyword" in span.role] == ["def"]
    assert copied_text(tool.lines(60)[1:]) == "@@ -1,2 +1,2 @@\n-def f(x):\n+def f(y):\n     return x"
    tool.fold()
    assert "+1 \u22121" in drawn(tool)[0]


def test_a_change_stands_side_by_side_in_a_window_of_160_columns() -> None:
    tool = ToolBlock("1", "edit_file", "a.py")
    details = {"path": "a.py", "old": "one\ntwo\nthree\n", "new": "one\n2\nthree\nfour\n"}
    tool.finish(ToolOutcome.RAN, "ok", is_error=False, details=details)
    rows = drawn(tool, 159)  # the scrollbar takes a column
    assert "2 - two" in rows[3]
    assert "2 + 2" in rows[3]
    assert "4 + four" in rows[5]
    assert len(drawn(tool, 158)) == len(rows) + 1


@pytest.mark.parametrize(("old", "new", "sign"), [("", "a\nb\n", "+"), ("a\nb\n", "", "-")])
def test_a_new_file_is_all_added_and_a_deleted_one_all_removed(old: str, new: str, sign: str) -> None:
    tool = ToolBlock("1", "write_file", "a")
    tool.finish(ToolOutcome.RAN, "ok", is_error=False, details={"path": "a", "old": old, "new": new})
    assert drawn(tool, 200)[1:] == [f"  \u2502 1 {sign} a", f"  \u2502 2 {sign} b"]


def test_a_file_that_was_read_is_numbered_and_highlighted_by_its_name() -> None:
    tool = ToolBlock("1", "read_file", "a.py")
    text = "import os\n[lines 7-7 of 90; continue with offset=8]"
    details = {"path": "a.py", "first_line": 7, "last_line": 7}
    tool.finish(ToolOutcome.RAN, text, is_error=False, details=details)
    assert drawn(tool)[1:] == ["  \u2502 7 import os", "  \u2502   [lines 7-7 of 90; continue with offset=8]"]
    assert [span.text for span in tool.lines(60)[1].spans if "keyword" in span.role] == ["import"]


def test_a_last_line_in_brackets_is_a_line_of_the_file() -> None:
    tool = ToolBlock("1", "read_file", "a.toml")
    details = {"path": "a.toml", "first_line": 1, "last_line": 2}
    tool.finish(ToolOutcome.RAN, "a = 1\n[table]\n", is_error=False, details=details)
    assert drawn(tool)[1:] == ["  \u2502 1 a = 1", "  \u2502 2 [table]"]


def test_json_is_highlighted() -> None:
    tool = ToolBlock("1", "fetch", "")
    tool.finish(ToolOutcome.RAN, '{"a": 1}', is_error=False)
    assert [span.text for span in tool.lines(60)[1].spans if "code.name" in span.role] == ['"a"']


def test_the_users_own_command_is_told_apart() -> None:
    shell = ShellBlock("1", "bash", "ls")
    shell.finish(ToolOutcome.RAN, "a", is_error=False, seconds=0.1)
    shell.fold()
    assert [plain(line.spans) for line in shell.lines(50)] == [f"\u2713 ! ls \u2502 a{'done 100 ms':>40}"]


HELP = "Keys\n  Enter            sends it\n  Ctrl+C twice, Q  leaves, whatever goes on at the moment"


def test_text_beside_a_name_in_a_notice_stays_in_its_column() -> None:
    assert drawn(NoticeBlock(HELP), 46) == [
        "· Keys",
        "    Enter            sends it",
        "    Ctrl+C twice, Q  leaves, whatever goes on",
        "                     at the moment",
    ]
    assert copied_text(NoticeBlock(HELP).lines(46)).endswith("leaves, whatever goes on at the moment")


def test_help_has_its_parts_side_by_side_where_there_is_room() -> None:
    parts = ["Keys\n  Enter  sends it\n  Esc    stops it", "Commands\n  /help  what there is"]
    wide = [row.split() for row in drawn(HelpBlock(parts), 130)]
    assert wide == [
        ["\u00b7", "Keys", "Commands"],
        ["Enter", "sends", "it", "/help", "what", "there", "is"],
        ["Esc", "stops", "it"],
    ]
    rows = drawn(HelpBlock(parts), 130)
    assert rows[0].index("Commands") == rows[1].index("/help") - 2 == 66
    narrow = [*drawn(NoticeBlock("\n\n".join(parts)), 80)]
    assert drawn(HelpBlock(parts), 80) == narrow
    assert len(narrow) == 6


def test_and_below_the_name_where_its_column_would_be_narrow() -> None:
    assert drawn(NoticeBlock(HELP), 34) == [
        "· Keys",
        "    Enter            sends it",
        "    Ctrl+C twice, Q",
        "      leaves, whatever goes on at",
        "      the moment",
    ]


def test_a_flood_of_text_is_laid_out_in_bounded_steps_that_end_as_one_would() -> None:
    text = "".join([f"## Part {number}\n\nwords and *more* words\n\n" for number in range(400)])
    reply, whole = ReplyBlock(), ReplyBlock()
    for block in (reply, whole):
        block.append_thinking("first\n\na thought")
        block.append_text("Begun.\n\n")
        block.lines(80)
        block.append_text(text)
        block.append_thinking("then another")
        block.append_text("The end.")
        block.finish("aborted", "stopped by hand")
    heights = [len(reply.lines(80, 1000))]
    while reply.is_behind:
        assert reply.is_finished
        heights.append(len(reply.lines(80, 1000)))
    assert len(heights) >= len(text) // 1000
    assert max([after - before for before, after in pairwise(heights)]) < 150
    assert list(reply.lines(80)) == list(whole.lines(80))
    assert reply.text == whole.text
