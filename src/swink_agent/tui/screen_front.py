"""The front of a conversation on the full screen: questions, lists, the editor.

Shows each question as a widget and returns the user's answer. Approval questions are shown one at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from textual.screen import ModalScreen

from swink_agent.app.settings.key_bindings import ACTIONS, KeyMap
from swink_agent.app.talk.front import PickItem, PreviewFn
from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalQuestion
from swink_agent.core.approval import Defer

from .transcript.line import Line, Span

if TYPE_CHECKING:
    from .app import SwinkApp

T = TypeVar("T")
_HELP: tuple[tuple[tuple[str, ...], str], ...] = (
    (("send",), "send; during a run: steer it"),
    (("queue",), "during a run: queue a follow-up"),
    (("earlier",), "in an empty line: take the last queued message back; else earlier prompts"),
    (("new_line",), "a new line"),
    (("Esc", "Ctrl+C"), "stop; queued messages come back"),
    (("Ctrl+C twice", "leave"), "leave"),
    (("mode",), "ask about every call, auto, plan, and again"),
    (("history",), "search earlier prompts"),
    (("search",), "search the conversation"),
    (("open_paste",), "open a folded paste"),
    (
        ("delete_word_left", "delete_line_start", "delete_line_end"),
        "delete a word, to the beginning of the line, to its end; {bring_back} brings it back",
    ),
    (("editor",), "edit the draft in your own editor"),
    (("clipboard",), "attach the picture on the clipboard, or insert its text"),
    (("open_block", "block_before", "block_after"), "open and fold a tool's block; the one before, the next"),
    (("todo",), "fold and open the list of things to do"),
    (("mouse",), "give the mouse to the terminal, and back"),
    (("page_up", "page_down", "top"), "scroll; {bottom}, or End at the end of the draft, follows again"),
    (("suspend",), "go to the shell; fg comes back"),
    (("@",), "complete a file"),
    (("!command",), "run a command yourself; the model sees it with your next prompt"),
)
"""Rows of the help: names of actions or fixed keys, and their effect."""
_MOST_KEYS = {"new_line": 3}


def help_rows(keys: KeyMap) -> list[tuple[str, str]]:
    """Returns the rows of the help, with the user's own keys. An action without a key has no row."""
    rows: list[tuple[str, str]] = []
    every = {action.name: keys.shown(action.name) or "/bindings" for action in ACTIONS}
    for names, words in _HELP:
        shown = [keys.shown(name, _MOST_KEYS.get(name, 1)) if name in every else name for name in names]
        if text := ", ".join([name for name in shown if name]):
            rows.append((text, words.format(**every)))
    return rows


class ScreenFront:
    def __init__(self, app: SwinkApp) -> None:
        self._app = app
        self._asking = asyncio.Lock()

    lacks = ()

    @property
    def keys(self) -> Sequence[tuple[str, str]]:
        return help_rows(self._app.keys)

    @property
    def theme(self) -> str:
        return self._app.looks.theme.name

    def changed(self) -> None:
        self._app.draw_soon()

    async def ask(self, question: ApprovalQuestion) -> ApprovalAnswer | Defer:
        from .widgets.question_panel import QuestionPanel

        app = self._app
        async with self._asking:
            panel = QuestionPanel(question, app.talk.redact, looks=lambda: app.looks)
            request = question.request
            # The id of a delegate's call can recur, unless the call can wait: then its id is unique.
            is_counted = question.can_wait or not request.delegates
            panel.set_place(*(app.talk.place_of(request.call_id) if is_counted else (1, 1)))
            answer: asyncio.Future[ApprovalAnswer | Defer] = asyncio.get_running_loop().create_future()
            app.show_question(panel, answer)
            try:
                given = await answer
            finally:
                app.end_question(panel)
        if panel.kept:
            await app.talk.keep_rule(panel.kept)
        return given

    async def confirm(self, title: str, choices: Sequence[tuple[str, str]], default: str) -> str | None:
        from .widgets.confirm import Confirm

        return await self._screen(Confirm(title, choices, default))

    async def pick(self, title: str, items: Sequence[PickItem], preview: PreviewFn | None = None) -> str | None:
        from .widgets.picker import Picker

        async def lines(key: str) -> list[Line]:
            assert preview is not None
            return [Line((Span(text, "dim" if is_dim else "text"),)) for text, is_dim in await preview(key)]

        return await self._screen(Picker(title, items, preview and lines, style_of=self._app.looks.style))

    async def read_secret(self, title: str) -> str | None:
        from .widgets.secret_input import SecretInput

        return await self._screen(SecretInput(title))

    async def edit(self, text: str) -> str | None:
        from .composing.editor import EditorError, edited

        app = self._app
        left = None
        with app.lent():
            try:
                left = await edited(text, app.environ, app.talk.opening.writable)
            except EditorError as error:
                app.talk.notice(str(error), "error")
        return left

    def bring_back(self, text: str, images: Sequence[str] = ()) -> None:
        if not self._app.composer.text and not self._app.composer.images:
            self._app.composer.give_back(text, images)

    def give_back(self, text: str, images: Sequence[str] = ()) -> None:
        self._app.composer.give_back(text, images)

    def copy(self, text: str) -> None:
        self._app.copy_text(text)

    def set_theme(self, name: str) -> None:
        self._app.use_theme(name)

    def leave(self, code: int = 0) -> None:
        self._app.leave(code)

    async def _screen(self, screen: ModalScreen[T]) -> T | None:
        """Shows a dialog and returns its result; the dialog closes if the caller is cancelled."""
        given: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()

        app: Any = self._app

        def give(result: T | None) -> None:
            app.call_after_refresh(app.question_in_sight)
            if not given.done():
                given.set_result(result)

        app.push_screen(screen, give)
        try:
            return await given
        finally:
            if screen.is_active:
                screen.dismiss(None)
