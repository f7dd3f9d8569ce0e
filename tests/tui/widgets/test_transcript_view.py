"""The view of a transcript in an application: following, scrolling, folding, searching, selecting, resizing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from swink_agent import AssistantMessage, ToolOutcome, UserMessage
from swink_agent.tui.themes import THEMES
from swink_agent.tui.transcript import NoticeBlock, ReplyBlock, ToolBlock, Transcript, UserBlock, blocks_of
from swink_agent.tui.transcript.line import Line, plain
from swink_agent.tui.transcript.markdown import MarkdownStream
from swink_agent.tui.widgets import call_timers, transcript_view
from swink_agent.tui.widgets.strips import ThemeStyles
from swink_agent.tui.widgets.transcript_view import TranscriptView


class Viewer(App[None]):
    def __init__(self, transcript: Transcript, theme: str = "dark") -> None:
        super().__init__()
        self.view = TranscriptView(transcript, THEMES[theme])
        self.copied: list[str] = []

    def compose(self) -> ComposeResult:
        yield self.view

    def on_transcript_view_selected(self, message: TranscriptView.Selected) -> None:
        self.copied.append(message.text)


class Counted(ReplyBlock):
    """A reply that counts how often it is drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.drawings = 0

    def _draw(self, width: int) -> Any:
        self.drawings += 1
        return super()._draw(width)


@asynccontextmanager
async def shown(
    transcript: Transcript, size: tuple[int, int] = (60, 12), theme: str = "dark"
) -> AsyncIterator[tuple[TranscriptView, Pilot[None]]]:
    app = Viewer(transcript, theme)
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        yield app.view, pilot


async def until(is_so: Callable[[], bool]) -> None:
    """Waits for what a timer does."""
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - a timer has no event
            await asyncio.sleep(0.01)


async def settled(pilot: Pilot[None]) -> None:
    """Until the next frame has been drawn."""
    await asyncio.sleep(0.06)
    await pilot.pause()


def screen(view: TranscriptView) -> list[str]:
    """What is seen, without the scrollbar."""
    strips = view.render_lines(view.size.region)
    return [strip.text[:-1].rstrip() for strip in strips]


def replies(count: int) -> Transcript:
    transcript = Transcript()
    for number in range(count):
        transcript.add(UserBlock(f"question {number}"))
        reply = ReplyBlock()
        reply.append_text(f"answer {number}\n\n" + "\n\n".join([f"paragraph {number}.{part}" for part in range(3)]))
        reply.finish()
        transcript.add(reply)
    return transcript


# -- following -----------------------------------------------------------------------------------------------------


async def test_streaming_text_is_followed() -> None:
    transcript = Transcript()
    reply = ReplyBlock()
    transcript.add(reply)
    async with shown(transcript) as (view, pilot):
        for number in range(30):
            reply.append_text(f"line {number}\n\n")
        await settled(pilot)
        assert view.is_following
        assert screen(view)[-1] == "  line 29\u258c"


async def test_of_a_flood_only_what_may_be_seen_is_laid_out_and_the_end_is_there_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    laid_out: list[int] = []
    frames: list[None] = []
    feed, frame = MarkdownStream.feed, TranscriptView._frame

    def counted_feed(stream: MarkdownStream, text: str) -> None:
        laid_out.append(len(text))
        feed(stream, text)

    def counted_frame(view: TranscriptView) -> None:
        frames.append(None)
        frame(view)

    monkeypatch.setattr(MarkdownStream, "feed", counted_feed)
    monkeypatch.setattr(TranscriptView, "_frame", counted_frame)
    transcript = Transcript()
    parts = [ReplyBlock(seam="apart" if number else "") for number in range(6)]
    async with shown(transcript) as (view, pilot):
        for number, part in enumerate(parts):
            transcript.add(part)
            for paragraph in range(300):
                part.append_text(f"paragraph {number}.{paragraph} {'words ' * 20}\n\n")
            await settled(pilot)
            part.finish("aborted" if part is parts[-1] else "")
        size = len(parts[0].answer)
        begun, drawn = len(frames), sum(laid_out)
        assert drawn < 2 * size
        await until(lambda: screen(view)[-1].endswith("stopped"))
        assert sum(laid_out) < drawn + 2 * size
        assert len(frames) - begun < 2 * size / 4096
        count = len(frames)
        await settled(pilot)
        assert len(frames) == count
        view.scroll_to_start()
        assert screen(view)[0].startswith("\u25cf paragraph 0.0 words")
        seen = "\n".join(["\n".join([plain(line.spans) for line in part.lines(59)]) for part in parts])
        assert all(f"paragraph {number}.299 " in seen for number in range(6))


async def test_scrolling_up_lets_go_and_a_marker_counts_what_is_new() -> None:
    transcript = replies(10)
    async with shown(transcript) as (view, pilot):
        view.scroll_rows(-5)
        await settled(pilot)
        before = screen(view)
        assert not view.is_following
        transcript.add(NoticeBlock("one\ntwo\nthree"))
        await settled(pilot)
        assert screen(view)[:-1] == before[:-1]
        assert view.new_below == 4  # with the gap above them
        assert screen(view)[-1].strip() == "\u2193 4 new lines"


async def test_the_end_is_followed_again_when_asked_or_reached() -> None:
    transcript = replies(10)
    async with shown(transcript) as (view, pilot):
        view.scroll_rows(-5)
        view.follow()
        await settled(pilot)
        assert view.is_following
        view.scroll_rows(-5)
        view.scroll_rows(9)
        assert view.is_following
        assert screen(view)[-1] == "  paragraph 9.2"


async def test_a_click_on_the_marker_returns_to_the_end() -> None:
    transcript = replies(10)
    async with shown(transcript) as (view, pilot):
        view.scroll_rows(-8)
        transcript.add(NoticeBlock("new"))
        await settled(pilot)
        await pilot.click(TranscriptView, offset=(30, 11))
        await settled(pilot)
        assert view.is_following
        assert screen(view)[-1].endswith("new")


async def test_the_wheel_scrolls() -> None:
    async with shown(replies(10)) as (view, pilot):
        last = view.top_row
        await pilot._post_mouse_events([transcript_view.events.MouseScrollUp], TranscriptView, offset=(5, 5))
        assert view.top_row == last - 3


# -- only what is seen is drawn ------------------------------------------------------------------------------------


async def test_of_a_long_history_only_what_is_seen_is_drawn() -> None:
    transcript = Transcript()
    blocks = [Counted() for _ in range(500)]
    for number, block in enumerate(blocks):
        block.append_text(f"reply {number}\n\n" + "words " * 200)
        block.finish()
    transcript.extend(blocks)
    async with shown(transcript) as (view, pilot):
        assert sum(block.drawings for block in blocks) <= 4
        for _ in range(20):
            view.scroll_pages(-1)
            await pilot.pause()
        assert sum(block.drawings for block in blocks) <= 24


@pytest.mark.sweep
async def test_scrolling_through_estimated_heights_never_jumps() -> None:
    transcript = Transcript()
    for number in range(40):
        reply = ReplyBlock()
        reply.append_text(f"reply {number}\n\n" + "- item\n" * (number % 7) + "long words " * (number % 5 * 10))
        reply.finish()
        transcript.add(reply)
    async with shown(transcript) as (view, pilot):
        seen = screen(view)
        for _ in range(120):
            view.scroll_rows(-1)
            now = screen(view)
            assert now[1:-1] == seen[:-2]
            seen = now
            await pilot.pause()


async def test_a_delta_draws_its_rows_and_no_others() -> None:
    transcript = replies(3)
    reply = ReplyBlock()
    transcript.add(reply)
    reply.append_text("begun")
    async with shown(transcript, (60, 40)) as (view, pilot):
        drawn: list[int] = []
        original = view.refresh

        def counting(*regions: Any, **options: Any) -> Any:
            drawn.extend([region.height for region in regions] or [view.size.height])
            return original(*regions, **options)

        view.refresh = counting  # type: ignore[method-assign]
        reply.append_text(" and more")
        await settled(pilot)
        assert drawn == [1]
        assert "begun and more" in screen(view)[30]


async def test_many_deltas_become_few_frames() -> None:
    transcript = Transcript()
    reply = Counted()
    transcript.add(reply)
    async with shown(transcript) as (_, pilot):
        drawings = 0
        for _ in range(10):  # on a busy machine the same deltas take the time of more frames
            before = reply.drawings
            for number in range(200):
                reply.append_text(f"word{number} ")
                if number % 20 == 0:
                    await asyncio.sleep(0)
            await settled(pilot)
            drawings = reply.drawings - before
            if drawings <= 3:
                break
        assert drawings <= 3


async def test_nothing_runs_while_nothing_happens() -> None:
    transcript = replies(3)
    tool = ToolBlock("1", "bash", "true")
    transcript.add(tool)
    async with shown(transcript) as (view, pilot):
        tool.begin()
        await settled(pilot)
        assert view._call_timers._timer is not None
        tool.finish(ToolOutcome.RAN, "", is_error=False)
        tool.toggle()
        tool.toggle()
        await until(lambda: view._call_timers._timer is None and view._frame_timer is None)
        await asyncio.sleep(0.3)
        await pilot.pause()
        assert view._call_timers._timer is None
        assert view._frame_timer is None


# -- resizing ------------------------------------------------------------------------------------------------------


async def test_a_resize_wraps_anew_and_keeps_the_readers_place() -> None:
    transcript = replies(30)
    async with shown(transcript, (60, 12)) as (view, pilot):
        view.scroll_rows(-60)
        await pilot.pause()
        words = screen(view)[0]
        await pilot.resize_terminal(90, 20)
        await settled(pilot)
        assert screen(view)[0] == words
        assert not view.is_following
        view.follow()
        await pilot.resize_terminal(30, 8)
        await settled(pilot)
        assert screen(view)[-1] == "  paragraph 29.2"
        assert all(strip.cell_length == 30 for strip in view.render_lines(view.size.region))


async def test_clearing_the_transcript_clears_the_view() -> None:
    transcript = replies(10)
    async with shown(transcript) as (view, pilot):
        view.scroll_rows(-8)
        transcript.clear()
        await settled(pilot)
        assert screen(view) == [""] * 12
        transcript.add(NoticeBlock("again"))
        await settled(pilot)
        assert screen(view)[0] == "\u00b7 again"
        assert view.is_following


# -- tool calls ----------------------------------------------------------------------------------------------------


def a_tool(transcript: Transcript, name: str = "bash", output: str = "first\nsecond") -> ToolBlock:
    tool = ToolBlock(name, name, "make")
    transcript.add(tool)
    tool.begin()
    tool.finish(ToolOutcome.RAN, output, is_error=False, seconds=1.5)
    return tool


async def test_a_call_folds_a_while_after_its_end(monkeypatch: Any) -> None:
    monkeypatch.setattr(call_timers, "FOLD_AFTER", 1.5)
    transcript = Transcript()
    async with shown(transcript) as (view, pilot):
        tool = a_tool(transcript)
        await settled(pilot)
        assert screen(view)[1] == "  \u2502 first"
        await until(lambda: not tool.is_open)
        await settled(pilot)
        assert screen(view)[0].split() == ["\u2713", "bash", "make", "\u2502", "first", "done", "1.5", "s"]
        assert screen(view)[1] == ""


async def test_a_call_that_is_selected_or_opened_by_hand_stays_open(monkeypatch: Any) -> None:
    monkeypatch.setattr(call_timers, "FOLD_AFTER", 0.1)
    transcript = Transcript()
    async with shown(transcript) as (view, pilot):
        first, second = a_tool(transcript, "one"), a_tool(transcript, "two")
        view.select_tool(-1)
        assert view.selected_block is second
        first.toggle()
        await asyncio.sleep(0.2)
        await settled(pilot)
        assert (first.is_open, second.is_open) == (True, True)
        view.clear_selection()
        await until(lambda: not second.is_open)
        assert (first.is_open, second.is_open) == (True, False)


async def test_calls_are_selected_and_opened_by_key() -> None:
    transcript = Transcript()
    tools = [a_tool(transcript, f"tool{number}") for number in range(3)]
    for tool in tools:
        tool.fold()
    async with shown(transcript) as (view, pilot):
        view.toggle_selected()
        assert view.selected_block is tools[2]
        view.select_tool(-1)
        view.toggle_selected()
        await settled(pilot)
        assert [tool.is_open for tool in tools] == [False, True, True]
        view.toggle_selected()
        assert not tools[1].is_open
        view.select_tool(-9)
        assert view.selected_block is tools[0]


async def test_a_key_opens_what_is_in_sight_and_shows_its_beginning() -> None:
    transcript = Transcript()
    first = a_tool(transcript, "first")
    first.finish(ToolOutcome.RAN, "\n".join(f"row {number}" for number in range(200)), is_error=False)
    for number in range(60):
        transcript.add(NoticeBlock(f"notice {number}", "info"))
    second = a_tool(transcript, "second")
    second.finish(ToolOutcome.RAN, "\n".join(f"row {number}" for number in range(200)), is_error=False)
    for tool in (first, second):
        tool.fold()
    async with shown(transcript) as (view, pilot):
        view.toggle_selected()
        await settled(pilot)
        assert (first.is_open, second.is_open) == (False, True)
        assert any("second" in row for row in screen(view))
        view.scroll_to_start()
        await settled(pilot)
        view.toggle_selected()
        await settled(pilot)
        assert first.is_open
        assert any("first" in row for row in screen(view))


async def test_a_thought_opens_from_the_keyboard() -> None:
    transcript = Transcript()
    reply = ReplyBlock()
    transcript.add(reply)
    reply.append_thinking("a deep thought")
    reply.append_text("The answer.")
    reply.finish()
    async with shown(transcript) as (view, pilot):
        assert not any("a deep thought" in row for row in screen(view))
        view.toggle_selected()
        await settled(pilot)
        assert any("a deep thought" in row for row in screen(view))


@pytest.mark.parametrize(("lines", "is_open"), [(20, True), (60, False)])
async def test_a_short_change_stays_open(monkeypatch: Any, lines: int, is_open: bool) -> None:
    monkeypatch.setattr(call_timers, "FOLD_AFTER", 0.05)
    transcript = Transcript()
    async with shown(transcript) as (_, pilot):
        tool = a_tool(transcript, "edit_file")
        other = a_tool(transcript, "other")
        details = {"path": "a.py", "old": "", "new": "x\n" * lines}
        tool.finish(ToolOutcome.RAN, "Created", is_error=False, details=details)
        await until(lambda: not other.is_open)
        await settled(pilot)
        if not is_open:
            await until(lambda: not tool.is_open)
        assert tool.is_open == is_open


async def test_a_click_on_the_head_of_a_call_opens_it() -> None:
    transcript = Transcript()
    tool = a_tool(transcript)
    tool.fold()
    async with shown(transcript) as (view, pilot):
        await pilot.click(TranscriptView, offset=(4, 0))
        await settled(pilot)
        assert tool.is_open
        assert screen(view)[2] == "  \u2502 second"


# -- runs of the same tool -----------------------------------------------------------------------------------------


def a_read(transcript: Transcript, path: str, *, is_error: bool = False) -> ToolBlock:
    tool = ToolBlock(path, "read_file", path)
    transcript.add(tool)
    tool.begin()
    tool.finish(ToolOutcome.RAN, f"text of {path}", is_error=is_error, seconds=0.5)
    tool.fold()
    return tool


def heads(view: TranscriptView) -> list[str]:
    """The rows that are not empty, without what fills them up."""
    return [" ".join(row.split()) for row in screen(view) if row]


_SINGLE = [f"\u2713 read_file {name}.py \u2502 text of {name}.py done 500 ms" for name in "abc"]
_RUN = "\u2713 read_file \u00d73 a.py, b.py, c.py done 1.5 s"


async def test_calls_of_one_tool_that_follow_each_other_are_one_row() -> None:
    transcript = Transcript()
    async with shown(transcript) as (view, pilot):
        a_read(transcript, "a.py")
        await settled(pilot)
        assert heads(view) == _SINGLE[:1]
        for name in ("b.py", "c.py"):
            a_read(transcript, name)
        await settled(pilot)
        assert heads(view) == [_RUN]
        transcript.add(NoticeBlock("a word"))
        a_read(transcript, "d.py")
        await settled(pilot)
        assert heads(view)[:2] == [_RUN, "\u00b7 a word"]
        assert "d.py" in heads(view)[2]
        assert view._rows.total == 3


async def test_errors_and_calls_that_go_on_or_wait_for_an_answer_stay_rows_of_their_own() -> None:
    transcript = Transcript()
    async with shown(transcript) as (view, pilot):
        a_read(transcript, "a.py")
        a_read(transcript, "missing.py", is_error=True)
        for name in ("b.py", "c.py"):
            a_read(transcript, name)
        running, asking = ToolBlock("r", "read_file", "r.py"), ToolBlock("q", "read_file", "q.py")
        transcript.extend([running, asking])
        running.begin()
        asking.ask()
        await settled(pilot)
        found = [row.split("\u2502")[0].strip() for row in heads(view)]
        assert found[:2] == ["\u2713 read_file a.py", "\u2717 read_file missing.py"]
        assert found[2] == "\u2713 read_file \u00d72 b.py, c.py done 1.0 s"
        assert [row.split()[1:3] for row in found[3:]] == [["read_file", "r.py"], ["read_file", "q.py"]]
        running.finish(ToolOutcome.RAN, "", is_error=False, seconds=1)
        running.fold()
        await settled(pilot)
        assert heads(view)[2] == "\u2713 read_file \u00d73 b.py, c.py, r.py done 2.0 s"


async def test_a_run_opens_into_its_calls_and_folds_again_with_the_first() -> None:
    transcript = Transcript()
    first, second, third = [a_read(transcript, f"{name}.py") for name in "abc"]
    async with shown(transcript) as (view, pilot):
        assert heads(view) == [_RUN]
        view.toggle_selected()
        await settled(pilot)
        assert heads(view) == _SINGLE
        assert view.selected_block is first
        view.select_tool(1)
        assert view.selected_block is second
        view.toggle_selected()
        await settled(pilot)
        assert (first.is_open, second.is_open, third.is_open) == (False, True, False)
        view.toggle_selected()
        view.select_tool(-1)
        view.toggle_selected()
        assert first.is_open
        view.toggle_selected()
        await settled(pilot)
        assert heads(view) == [_RUN]
        await pilot.click(TranscriptView, offset=(4, 1))  # below it, where nothing is
        await settled(pilot)
        assert heads(view) == [_RUN]
        await pilot.click(TranscriptView, offset=(4, 0))
        await settled(pilot)
        assert heads(view) == _SINGLE


async def test_a_call_that_is_selected_may_vanish_in_a_run() -> None:
    transcript = Transcript()
    first, second, _ = [a_read(transcript, f"{name}.py") for name in "abc"]
    async with shown(transcript) as (view, pilot):
        first.toggle()
        view.select_tool(0)
        view.select_tool(-1)
        assert view.selected_block is second
        first.toggle()
        first.toggle()
        await settled(pilot)
        assert heads(view) == [_RUN]
        view.toggle_selected()
        await settled(pilot)
        assert (view.selected_block, heads(view)) == (first, _SINGLE)


async def test_a_search_takes_a_call_out_of_its_run() -> None:
    transcript = Transcript()
    tools = [a_read(transcript, f"{name}.py") for name in "abcde"]
    async with shown(transcript) as (view, pilot):
        assert view.search("text of c") == 1
        await settled(pilot)
        rows = [row.split("done")[0].strip() for row in heads(view)]
        assert [tool.is_open for tool in tools] == [False, False, True, False, False]
        assert rows == [
            "\u2713 read_file \u00d72 a.py, b.py",
            "\u2713 read_file c.py",
            "\u2502 text of c.py",
            "\u2713 read_file \u00d72 d.py, e.py",
        ]


async def test_a_long_run_says_that_it_has_more() -> None:
    transcript = Transcript()
    for number in range(40):
        a_read(transcript, f"folder/file{number}.py")
    async with shown(transcript) as (view, pilot):
        (row,) = heads(view)
        assert row.startswith("\u2713 read_file \u00d740 folder/file0.py, ")
        assert row.endswith(", \u2026 done 20.0 s")
        await pilot.resize_terminal(24, 12)
        await settled(pilot)
        assert heads(view) == ["\u2713 read_file \u00d740 done 2\u2026"]


async def test_reduced_motion_turns_nothing() -> None:
    transcript = Transcript()
    tool = ToolBlock("1", "bash", "sleep 9")
    transcript.add(tool)
    async with shown(transcript) as (view, pilot):
        view.set_motion(reduced=True)
        tool.begin()
        await asyncio.sleep(0.2)
        await settled(pilot)
        assert screen(view)[0].startswith("\u25cf bash sleep 9")
        assert view._call_timers._timer is None


# -- searching -----------------------------------------------------------------------------------------------------


async def test_a_search_finds_what_is_folded_and_what_was_never_drawn() -> None:
    transcript = Transcript()
    transcript.extend(
        blocks_of([UserMessage("where is the needle?"), AssistantMessage("no **needle** here")], redact=str)
    )
    tool = a_tool(transcript, "bash", "hay\n" * 50 + "the needle\n" + "hay\n" * 50)
    tool.fold()
    for block in replies(40).blocks:
        transcript.add(block)
    async with shown(transcript) as (view, pilot):
        assert view.search("needle") == 3
        await settled(pilot)
        assert tool.is_open
        assert any("the needle" in row for row in screen(view))
        view.next_hit(-1)
        await settled(pilot)
        assert any("no needle here" in row for row in screen(view))
        view.next_hit(-1)
        view.next_hit(-1)
        assert view.current_hit == 3
        view.end_search()
        assert view.search("nowhere") == 0


async def test_a_hit_over_the_end_of_a_row_is_marked_in_both() -> None:
    transcript = Transcript()
    transcript.add(UserBlock("x" * 20 + " alpha beta"))
    async with shown(transcript, (32, 6)) as (view, pilot):
        assert view.search("alpha beta") == 1
        await settled(pilot)
        marked = [
            segment.text
            for strip in view.render_lines(view.size.region)
            for segment in strip
            if segment.style == ThemeStyles(view.theme).style("user+hit.current")
        ]
        assert marked == ["alpha", "beta"]


# -- selecting -----------------------------------------------------------------------------------------------------


async def drag(pilot: Pilot[None], start: tuple[int, int], end: tuple[int, int]) -> None:
    await pilot.mouse_down(TranscriptView, offset=start)
    await pilot.hover(TranscriptView, offset=end)
    await pilot.mouse_up(TranscriptView, offset=end)
    await pilot.pause()


async def test_text_selected_with_the_mouse_is_copied_without_gutters() -> None:
    transcript = Transcript()
    reply = ReplyBlock()
    reply.append_text("some words that are long enough to be wrapped\n\n```py\nx = 1\ny = 2\n```")
    reply.finish()
    transcript.add(reply)
    async with shown(transcript, (32, 12)) as (view, pilot):
        await drag(pilot, (2, 0), (31, 6))
        assert view.selected_text() == "some words that are long enough to be wrapped\n\nx = 1\ny = 2"
        assert pilot.app.copied == [view.selected_text()]  # type: ignore[attr-defined]
        await drag(pilot, (7, 0), (11, 0))
        assert view.selected_text() == "words"
        view.clear_selection()
        assert view.selected_text() == ""


async def test_a_selection_stays_where_it_is_when_more_comes() -> None:
    transcript = replies(2)
    async with shown(transcript, (40, 30)) as (view, pilot):
        await drag(pilot, (2, 0), (11, 0))
        transcript.add(NoticeBlock("more"))
        await settled(pilot)
        assert view.selected_text() == "question 0"


# -- themes --------------------------------------------------------------------------------------------------------


async def test_colours_are_absent_without_support() -> None:
    transcript = replies(1)
    async with shown(transcript, theme="plain") as (view, _):
        styles = [segment.style for strip in view.render_lines(view.size.region) for segment in strip]
        assert all(style is not None and style.color is None and style.bgcolor is None for style in styles)
        assert any(style.bold for style in styles if style is not None)


async def test_another_theme_is_drawn_at_once() -> None:
    transcript = replies(1)
    async with shown(transcript) as (view, pilot):
        view.set_theme(THEMES["light"])
        await settled(pilot)
        assert view.theme.name == "light"
        grounds = {
            segment.style.bgcolor.name
            for strip in view.render_lines(view.size.region)
            for segment in strip
            if segment.style is not None and segment.style.bgcolor is not None
        }
        assert THEMES["light"].background in grounds
        assert THEMES["dark"].background not in grounds


def test_every_line_that_is_only_ornament_is_copied_as_nothing() -> None:
    reply = ReplyBlock(label="PLAN")
    reply.append_thinking("hm")
    reply.append_text("done")
    reply.finish()
    ornaments: list[Line] = [line for line in reply.lines(40) if line.glue == ""]
    assert [line.copied for line in ornaments] == ["", ""]


async def test_a_double_click_selects_a_word_and_a_third_the_line() -> None:
    transcript = Transcript()
    transcript.add(NoticeBlock("see src/names.py now"))
    async with shown(transcript) as (view, pilot):
        await pilot.click(TranscriptView, offset=(9, 0), times=2)
        assert view.selected_text() == "src/names.py"
        await pilot.click(TranscriptView, offset=(9, 0), times=3)
        assert view.selected_text() == "see src/names.py now"


@pytest.mark.sweep
async def test_blocks_drawn_again_in_parts_look_as_if_drawn_at_once() -> None:
    chance = random.Random(7)
    transcript = Transcript()
    replies_: list[ReplyBlock] = []
    tools: list[ToolBlock] = []
    async with shown(transcript, (50, 16)) as (view, pilot):

        def act() -> None:
            match chance.randrange(12):
                case 0:
                    transcript.add(UserBlock("a question " * chance.randrange(1, 9)))
                case 1:
                    replies_.append(ReplyBlock())
                    transcript.add(replies_[-1])
                case 2 | 3 | 4 if replies_:
                    delta = chance.choice(["words ", "more words of it ", "\n\n", "\n```py\nx = 1\n", "\n- item\n"])
                    replies_[-1].append_text(delta * chance.randrange(1, 4))
                case 5 if replies_:
                    replies_[-1].append_thinking("hm " * 9)
                case 6:
                    tools.append(ToolBlock("1", "bash", "make"))
                    transcript.add(tools[-1])
                    tools[-1].begin()
                case 7 if tools:
                    tools[-1].hear("output\n" * chance.randrange(1, 6))
                case 8 if tools:
                    tools[-1].finish(ToolOutcome.RAN, "done\n" * chance.randrange(9), is_error=False)
                    tools[chance.randrange(len(tools))].fold()
                case 9:
                    view.scroll_rows(chance.randrange(-9, 9))
                case 10 if tools:
                    chance.choice(tools).toggle()
                case 11 if chance.random() < 0.3:
                    view.follow()
                case _:
                    pass

        for _ in range(250):
            for _ in range(chance.randrange(1, 4)):
                act()
            view._frame()
            await pilot.pause()
            drawn = [strip.text for strip in view.render_lines(view.size.region)]
            view._page.spoil(())
            assert drawn == [strip.text for strip in view.render_lines(view.size.region)]
            assert view.top_row + 16 <= max(view._rows.total, 16)
