"""A question in the panel: how a call is shown, which keys answer it, and when they count."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec
import pytest
from textual import events
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widgets import Static

from swink_agent import ProposedCall
from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalChoice, ApprovalQuestion
from swink_agent.rendering.cells import cell_width
from swink_agent.tui.themes import THEMES
from swink_agent.tui.transcript.diffs import Change
from swink_agent.tui.transcript.line import plain
from swink_agent.tui.widgets.question_panel import QuestionPanel
from swink_agent.tui.widgets.strips import ThemeStyles

BOX = "╭╮╰╯│─"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Host(App[None]):
    CSS = "Static { height: 1fr; }"

    def __init__(
        self,
        question: ApprovalQuestion,
        redact: Callable[[str], str] = str,
        looks: Callable[[], ThemeStyles] | None = None,
    ) -> None:
        super().__init__()
        self.answers: list[ApprovalAnswer] = []
        self.keys: list[str] = []
        self.clock = Clock()
        self._made = redact, looks
        self.panel = self._panel(question)

    def compose(self) -> ComposeResult:
        yield Static()
        yield self.panel

    def _panel(self, question: ApprovalQuestion) -> QuestionPanel:
        redact, looks = self._made
        return QuestionPanel(question, redact, looks=looks, clock=self.clock)

    def on_mount(self) -> None:
        self.panel.focus()

    async def ask(self, question: ApprovalQuestion) -> None:
        """Shows another question, whose answers are the only ones."""
        await self.panel.remove()
        self.answers.clear()
        self.panel = self._panel(question)
        await self.mount(self.panel)
        self.panel.focus()

    def on_question_panel_answered(self, event: QuestionPanel.Answered) -> None:
        self.answers.append(event.answer)

    def on_key(self, event: events.Key) -> None:
        self.keys.append(event.key)

    def shown(self) -> list[str]:
        return [self.panel.render_line(y).text.rstrip() for y in range(self.panel.size.height)]


Steps = Callable[[Host, Pilot[None]], Awaitable[None]]


async def asked(
    question: ApprovalQuestion,
    steps: Steps,
    *,
    redact: Callable[[str], str] = str,
    looks: Callable[[], ThemeStyles] | None = None,
    waits: bool = True,
    **options: Any,
) -> Host:
    host = Host(question, redact, looks)
    async with host.run_test(**options) as pilot:
        await drawn(host, pilot)
        if waits:
            host.clock.now += 1
        await steps(host, pilot)
        await pilot.pause()
    return host


async def drawn(host: Host, pilot: Pilot[None]) -> None:
    for _ in range(200):
        await pilot.pause(0.01)
        if host.panel._drawn_at is not None:
            return


async def answers_of(question: ApprovalQuestion, table: Iterable[Sequence[str]], **options: Any) -> list[Any]:
    """The answers that each row of keys gives to the question, in one program."""
    found: list[Any] = []

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        for keys in table:
            await host.ask(question)
            await drawn(host, pilot)
            host.clock.now += 1
            await pilot.press(*keys)
            await pilot.pause()
            found.append(list(host.answers))

    await asked(question, steps, **options)
    return found


def command(text: str, **more: Any) -> ApprovalQuestion:
    request = ProposedCall("1", "bash", {"command": text})
    return ApprovalQuestion(
        request=request, display="", why="no rule allows it", command="command", prefix="git push", **more
    )


def change(old: str, new: str, name: str = "write_file") -> ApprovalQuestion:
    arguments = {"path": "src/app.py", "content": new}
    if name == "edit_file":
        arguments = {"path": "src/app.py", "edits": [{"old": old, "new": new}]}
    details = {"path": "src/app.py", "old": old, "new": new, "is_new": False}
    choices = (ApprovalChoice.ONCE, ApprovalChoice.SESSION_TOOL, ApprovalChoice.NO)
    request = ProposedCall("1", name, arguments)
    return ApprovalQuestion(request=request, display="", why="it writes", details=details, choices=choices)


OLD = "".join(f"line {number}\n" for number in range(60))
NEW = OLD.replace("line 5\n", "line five\n").replace("line 30\n", "").replace("line 50\n", "line 50\nmore\n")

NO = ApprovalAnswer(ApprovalChoice.NO, "the user said no")


async def test_the_words_that_would_be_trusted_are_shown_whole() -> None:
    prefix = "/opt/" + "very/long/" * 12 + "bin/tool build"

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        rows = host.shown()
        begin = next(number for number, row in enumerate(rows) if "3 p" in row)
        assert prefix in "".join([row.strip().removeprefix("│ ") for row in rows[begin + 1 :]])

    question = command(f"{prefix} x")
    await asked(msgspec.structs.replace(question, prefix=prefix), steps, size=(80, 40))


async def test_one_hunk_is_not_offered_hunk_by_hunk() -> None:
    async def steps(host: Host, pilot: Pilot[None]) -> None:
        assert "hunk by hunk" not in "\n".join(host.shown())
        await pilot.press("h", "y")

    host = await asked(change(OLD, OLD.replace("line 5\n", "line five\n")), steps)
    assert host.answers == [ApprovalAnswer(ApprovalChoice.ONCE)]


@pytest.mark.parametrize("width", [80, 159, 160])
async def test_a_change_is_drawn_as_the_finished_block_draws_it(width: int) -> None:
    old = "".join(f"x = {number}\n" for number in range(60))
    new = old.replace("x = 5\n", "y = 'five'\n")
    looks = ThemeStyles(THEMES["dark"])

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        drawn = [f"│{plain(line.spans)}".rstrip() for line in Change("src/app.py", old, new).lines(width - 5)]
        assert [row for row in host.shown() if row.startswith("│")] == drawn
        beside = [row for row in drawn if "6 - x = 5" in row and "y = 'five'" in row]
        assert bool(beside) == (width >= 160)
        styles = {segment.text.strip(): segment.style for y in range(12) for segment in host.panel.render_line(y)}
        assert styles["'five'"] == looks.style("code.string+added")

    await asked(change(old, new), steps, looks=lambda: looks, size=(width, 40))


def press(*keys: str) -> Steps:
    async def steps(host: Host, pilot: Pilot[None]) -> None:
        await pilot.press(*keys)

    return steps


async def test_each_key_means_one_thing() -> None:
    once = ApprovalAnswer(ApprovalChoice.ONCE)
    table: list[tuple[list[str], ApprovalAnswer]] = [
        (["1"], once),
        (["y"], once),
        (["Y"], once),
        (["2"], ApprovalAnswer(ApprovalChoice.SESSION_TOOL)),
        (["t"], ApprovalAnswer(ApprovalChoice.SESSION_TOOL)),
        (["3"], ApprovalAnswer(ApprovalChoice.SESSION_PREFIX)),
        (["p"], ApprovalAnswer(ApprovalChoice.SESSION_PREFIX)),
        (["4"], NO),
        (["n"], NO),
        (["escape"], NO),
        (["5", *"use make", "enter"], ApprovalAnswer(ApprovalChoice.NO, "the user said no, because use make")),
        (["b", *"nox", "backspace", "enter"], ApprovalAnswer(ApprovalChoice.NO, "the user said no, because no")),
        (["b", "x", "escape", "1"], once),
        (["enter", "space", "x", "h", "9", "tab", "1"], once),
        (["1", "2", "n"], once),
    ]
    found = await answers_of(command("git push"), [keys for keys, _ in table])
    assert found == [[answer] for _, answer in table]


async def test_unavailable_keys_do_nothing() -> None:
    question = command("git push", choices=(ApprovalChoice.ONCE, ApprovalChoice.NO))
    assert await answers_of(question, ["3", "p", "2", "t", "h"]) == [[]] * 5


async def test_unavailable_choices_are_not_listed() -> None:
    async def steps(host: Host, pilot: Pilot[None]) -> None:
        rows = "\n".join(host.shown())
        assert not any(word in rows for word in ("2 t", "3 p", "begin so", "hunk"))
        assert all(word in rows for word in ("1 y", "4 n", "5 b"))

    await asked(command("git push", choices=(ApprovalChoice.ONCE, ApprovalChoice.NO)), steps)


async def test_a_key_that_was_already_on_its_way_answers_nothing() -> None:
    async def steps(host: Host, pilot: Pilot[None]) -> None:
        await pilot.press("1", "y", "escape", "enter")
        host.clock.now += 0.29
        await pilot.press("1")
        assert host.answers == []
        host.clock.now += 0.02
        await pilot.press("1")

    host = await asked(command("git push"), steps, waits=False)
    assert host.answers == [ApprovalAnswer(ApprovalChoice.ONCE)]


async def test_a_paste_answers_nothing_and_is_a_reason_where_one_is_asked_for() -> None:
    async def steps(host: Host, pilot: Pilot[None]) -> None:
        host.panel.post_message(events.Paste("1\ry\r"))
        await pilot.pause()
        assert host.answers == []
        await pilot.press("b")
        host.panel.post_message(events.Paste("not\nlike \x1bthis"))
        await pilot.pause()
        await pilot.press("enter")

    host = await asked(command("git push"), steps)
    assert host.answers == [ApprovalAnswer(ApprovalChoice.NO, "the user said no, because not like this")]


async def test_stopping_and_quitting_pass_through() -> None:
    host = await asked(command("git push"), press("ctrl+c"))
    assert host.answers == []


async def test_escapes_and_bidirectional_characters_are_visible_and_secrets_are_not() -> None:
    text = "echo \x1b[2J \u202e sk-secret && rm -rf x"
    host = Host(
        command(text, warnings=("it holds characters that do not show",)), lambda t: t.replace("sk-secret", "[masked]")
    )
    async with host.run_test() as pilot:
        await pilot.pause()
        rows = host.shown()
    assert any("echo \\u{1b}[2J \\u{202e} [masked] && rm -rf x" in row for row in rows)
    assert "sk-secret" not in "\n".join(rows)
    assert any(row.startswith("  ! it holds") for row in rows)


async def test_a_long_call_scrolls_between_its_title_and_the_keys() -> None:
    question = change("", "".join(f"row {number}\n" for number in range(400)))

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        def content() -> list[str]:
            return [row[3:] for row in host.shown() if row.startswith("│+")]

        first = content()
        assert first[0] == "row 0"
        await pilot.press("pagedown")
        assert content()[0] == first[-1]
        await pilot.press("end")
        assert content()[-1] == "row 399"
        await pilot.press("up")
        assert content()[-1] == "row 398"
        await pilot.press("home", "down")
        assert content()[0] == "row 1"
        host.panel.post_message(events.MouseScrollDown(None, 1, 1, 0, 1, 0, False, False, False))
        await pilot.pause()
        assert content()[0] == "row 4"
        rows = host.shown()
        assert rows[0] == "◆ write_file src/app.py"
        assert any("1 y  yes, once" in row for row in rows[-4:])
        assert len(rows) <= 17
        assert str(host.panel.border_subtitle).startswith("rows 5-")

    await asked(question, steps, size=(80, 24))


async def test_keys_to_scroll_go_on_to_the_transcript_where_all_is_seen() -> None:
    host = await asked(command("git push"), press("pageup", "pagedown", "end"))
    assert host.keys == ["pageup", "pagedown", "end"]


@pytest.mark.parametrize(("width", "height"), [(20, 8), (40, 12), (60, 24), (200, 60)])
async def test_the_title_and_the_keys_are_in_view_in_any_window(width: int, height: int) -> None:
    forged = "x" * (width - 6) + "1 y  yes, once" + " " * 40 + "│ ◆ bash\n" + "\n".join(["◆ read_file a"] * 30)
    seen: list[str] = []

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        seen.extend(host.shown())

    await asked(command(forged), steps, size=(width, height))
    assert sum(row.startswith("◆") for row in seen) == 1
    first = next((number for number, row in enumerate(seen) if row.startswith("1 y")), len(seen))
    assert first < len(seen)
    marks = ("◆", "│", "  ┆", "  ·", "  !", "  …")
    assert all(row.startswith(marks) for row in seen[:first] if row), seen
    assert all(cell_width(row) <= width - 4 for row in seen)


@pytest.mark.parametrize("name", ["write_file", "edit_file"])
async def test_hunks_are_accepted_one_by_one(name: str) -> None:
    async def steps(host: Host, pilot: Pilot[None]) -> None:
        await pilot.press("h")
        await pilot.pause()
        assert any("line five" in row for row in host.shown())
        assert any(row.startswith("Hunk 1 of 3") for row in host.shown())
        await pilot.press("y")
        assert any(row.startswith("│- line 30") for row in host.shown())
        await pilot.press("n", "y")

    host = await asked(change(OLD, NEW, name), steps, size=(80, 30))
    (answer,) = host.answers
    assert answer.choice == ApprovalChoice.ONCE
    assert answer.arguments is not None
    assert answer.reason == "the user accepted 2 of the 3 changes in this call; not made: the one at line 31"
    expected = OLD.replace("line 5\n", "line five\n").replace("line 50\n", "line 50\nmore\n")
    if name == "write_file":
        assert answer.arguments == {"path": "src/app.py", "content": expected}
    else:
        from swink_agent.tools.files.edit_file import edits_in
        from swink_agent.tools.files.edits import apply_edits

        assert apply_edits(OLD, "\n", edits_in(answer.arguments), "f")[0] == expected


async def test_all_hunks_are_the_call_as_it_is_and_none_is_a_no() -> None:
    once = ApprovalAnswer(ApprovalChoice.ONCE)
    none = ApprovalAnswer(ApprovalChoice.NO, "the user said no, because none of the changes was accepted")
    table = [(["h", "a"], once), (["h", "y", "y", "y"], once), (["h", "d"], none), (["h", "n", "escape", "1"], once)]
    found = await answers_of(change(OLD, NEW), [keys for keys, _ in table], size=(80, 30))
    assert found == [[answer] for _, answer in table]


async def test_done_takes_what_was_accepted_so_far() -> None:
    host = await asked(change(OLD, NEW), press("h", "y", "d"), size=(80, 30))
    assert host.answers[0].arguments == {"path": "src/app.py", "content": OLD.replace("line 5\n", "line five\n")}


async def test_a_huge_call_is_shown_without_waiting_for_all_of_it() -> None:
    question = command("echo " + "x" * 3_000_000 + " end")

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        assert any(row.startswith("│ echo xxx") for row in host.shown())
        await pilot.press("pagedown", "4")

    host = await asked(question, steps)
    assert host.answers == [NO]


@pytest.mark.parametrize("size", [10, 60_000], ids=["small", "large"])
@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "while it is drawn"])
async def test_a_call_that_cannot_be_shown_says_so_and_can_only_be_said_no_to(size: int, is_late: bool) -> None:
    def redact(text: str) -> str:
        if is_late and not text.startswith("word"):
            return text
        raise KeyError("a mistake of ours")

    async def steps(host: Host, pilot: Pilot[None]) -> None:
        await pilot.pause()
        host.panel.begin_grace()
        await pilot.pause()
        host.clock.now += 1
        shown = "\n".join(host.shown())
        assert "this call cannot be shown (KeyError), so it cannot be allowed" in shown
        assert "reading the call" not in shown
        await pilot.press("y", "1", "2", "3", "h", "enter")
        assert host.answers == []
        await pilot.press("n")

    host = await asked(command("word" + " word" * (size // 5)), steps, redact=redact)
    assert [answer.choice for answer in host.answers] == [ApprovalChoice.NO]


async def test_in_the_smallest_window_the_answers_leave_room_for_the_call() -> None:
    async def steps(host: Host, pilot: Pilot[None]) -> None:
        rows = host.shown()
        assert rows[-2:] == ["1 y yes  2 t always  4 n no", "5 b no, because  6 k always here"]
        assert len(rows) >= 5
        await pilot.press("k")
        assert host.panel.kept == "write_file"

    await asked(change("one\n", "two\n"), steps, size=(40, 10))


# -- access --------------------------------------------------------------------------------------------------


def access(**more: Any) -> ApprovalQuestion:
    wanted = {"network": ["pypi.org", "files.pythonhosted.org"]}
    request = ProposedCall(
        "1", "bash", {"command": "pip install x", "access": {"network": ["PyPI.org"]}, "reason": "r"}
    )
    request = msgspec.structs.replace(request, scope={"access": wanted})
    choices = (ApprovalChoice.ONCE, ApprovalChoice.SESSION_ACCESS, ApprovalChoice.ALWAYS, ApprovalChoice.NO)
    sentence = "opens pypi.org for this command, or longer as you choose; it says: to install"
    return ApprovalQuestion(
        request=request, display="", why=sentence, command="command", choices=choices, access=wanted, **more
    )


async def test_access_is_shown_in_its_normal_form_and_has_keys_of_its_own() -> None:
    async def look(host: Host, pilot: Pilot[None]) -> None:
        assert host.panel.border_title == "Allow this access?"
        text = "\n".join(host.shown())
        assert "│! network: pypi.org, files.pythonhosted.org" in text
        assert "PyPI" not in text
        assert "! opens pypi.org for this command, or longer as you choose; it says: to install" in text
        assert "8 s  this session, unless it needs more" in text
        assert "9 a  always, every command: pypi.org, files.pythonhosted.org" in text

    await asked(access(), look, size=(90, 30))
    table = {"s": "session_access", "8": "session_access", "a": "always", "9": "always", "y": "once"}
    found = await answers_of(access(), table, size=(90, 30))
    assert found == [[ApprovalAnswer(ApprovalChoice(choice))] for choice in table.values()]


@pytest.mark.parametrize("size", [(60, 16), (44, 12)])
async def test_a_low_window_has_the_access_its_sentence_and_all_keys(size: tuple[int, int]) -> None:
    shown: list[str] = []

    async def look(host: Host, pilot: Pilot[None]) -> None:
        shown.extend(host.shown())

    warnings = ("passwords and keys in /home/ada/.aws can be read; the model and its provider see what is printed",)
    await asked(access(warnings=warnings), look, size=size)
    text = "\n".join(shown)
    assert "! network: pypi.org" in text
    assert "! opens pypi.org" in text
    for key in ("1 y", "8 s", "9 a", "4 n", "5 b"):
        assert key in text
    assert len(shown) <= size[1]
