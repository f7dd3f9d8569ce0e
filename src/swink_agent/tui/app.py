"""The full-screen program: a conversation, drawn with Textual.

Owns the layout, the keys that are no writing, and how often anything is drawn. What is said and done is the
conversation's (`talk`), what a transcript looks like is in `transcript`, and how the terminal is left is in `running`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.screen import ModalScreen
from textual.timer import Timer

from swink_agent.app.paths import data_folder

from .activity import Activity
from .composing.completer import Completer
from .composing.history import PromptHistory
from .driver import TerminalDriver
from .front import ScreenFront
from .status import Status
from .talk.commands import COMMANDS
from .talk.conversation import Conversation
from .talk.options import TalkOptions
from .themes import THEMES, Theme, theme_for
from .widgets.activity_panel import ActivityPanel
from .widgets.composer import Composer
from .widgets.search_bar import SearchBar
from .widgets.status_bar import StatusBar
from .widgets.theme_styles import ThemeStyles, textual_theme
from .widgets.transcript_view import TranscriptView
from .widgets.waiting_messages import WaitingMessages

if TYPE_CHECKING:
    from swink_agent.approvals.approvals import ApprovalAnswer

    from .widgets.question_panel import QuestionPanel

__all__ = ["SwinkApp"]

_FRAME = 1 / 20
"""Seconds between two drawings of the status at the least."""
_SPIN, _TICK = 0.1, 1.0
_TWICE = 2.0
"""Seconds in which a second Ctrl+C leaves."""
_NOTE = 4.0


class SwinkApp(App[int]):
    """One conversation on the whole screen."""

    TITLE = "swink"
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None
    CSS = """
    TranscriptView { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "leave", show=False, priority=True),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("escape", "escape", show=False),
        Binding("shift+tab", "plan", show=False, priority=True),
        Binding("f1", "help", show=False, priority=True),
        Binding("f2", "toggle_tool", show=False, priority=True),
        Binding("shift+left", "select_tool(-1)", show=False, priority=True),
        Binding("shift+right", "select_tool(1)", show=False, priority=True),
        Binding("ctrl+f", "search", show=False, priority=True),
        Binding("f6", "mouse", show=False, priority=True),
        Binding("pageup", "page(-1)", show=False, priority=True),
        Binding("pagedown", "page(1)", show=False, priority=True),
        Binding("ctrl+home", "top", show=False, priority=True),
        Binding("ctrl+end", "bottom", show=False, priority=True),
        Binding("end", "bottom", show=False),  # from the end of what is written; before that it is the line's
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
    ]

    def __init__(
        self,
        options: TalkOptions,
        *,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        theme = _first_theme(options.theme, environ)
        super().__init__(driver_class=TerminalDriver, ansi_color=True if theme.background is None else None)
        self.looks = ThemeStyles(theme)
        for known in THEMES.values():
            self.register_theme(textual_theme(known))
        self.theme = f"swink-{theme.name}"
        self.environ = environ
        self.crash: BaseException | None = None
        """What ended the program, if that was a mistake of ours."""
        self.talk = Conversation(options, ScreenFront(self))
        self._has_motion = options.has_motion
        self._clock = clock
        self._is_due = False
        self._spinning: Timer | None = None
        self._frame = 0
        self._interrupted_at = -_TWICE
        self._note = ""
        self._note_until = 0.0
        self._has_mouse = True
        self._is_lent = False
        self._hits = 0
        self._question: QuestionPanel | None = None
        self._answer: asyncio.Future[ApprovalAnswer] | None = None
        self.view = TranscriptView(self.talk.transcript, theme)
        self.view.set_motion(not self._has_motion)
        history = PromptHistory(data_folder(environ) / "prompts.jsonl", self.redact)
        self.composer = Composer(history=history, completer=Completer(commands=COMMANDS, folder=options.opening.folder))
        self._search_bar = SearchBar()
        self._activity = ActivityPanel(self.looks)
        self._chips = WaitingMessages()
        self._status = StatusBar(self._status_now(), self.looks)

    def redact(self, text: str) -> str:
        """The text with secrets masked, by what is known of them now."""
        opened = self.talk.opened
        if opened is None:
            from swink_agent.core.secrets.redaction import Redactor

            return Redactor().redact(text)
        return opened.redactor.redact(text)

    def compose(self) -> ComposeResult:
        yield self.view
        yield self._search_bar
        yield self._activity
        yield self._chips
        yield self.composer
        yield self._status

    def on_mount(self) -> None:
        self.composer.focus()
        # The first frame comes first: what an agent needs is looked for while the person reads it.
        self.call_after_refresh(self._open)

    @on(Driver.SignalResume)
    def _draw_all(self) -> None:
        """Fills the screen again when the shell gives the terminal back: it is empty then, and Textual leaves it so."""
        self.refresh(layout=True)

    def _open(self) -> None:
        self.talk.later(self.talk.open())

    # -- drawing -----------------------------------------------------------------------------------------------

    def draw_soon(self) -> None:
        """Status, queue and activity are drawn again within a frame."""
        if not self._is_due and self.is_running:
            self._is_due = True
            self.set_timer(_FRAME, self._draw)

    def _draw(self) -> None:
        self._is_due = False
        talk = self.talk
        is_busy = talk.is_running or bool(talk.running_tools)
        self.composer.is_running = talk.is_running
        self.composer.mode = talk.mode
        self.composer.chips = len(talk.queue)
        self._chips.show([(queued.kind, queued.text) for queued in talk.queue])
        self._spin(is_busy)
        self._draw_time()

    def _draw_time(self) -> None:
        talk = self.talk
        running = [
            Activity(block.name, block.summary, talk.seconds_of(block), block.newest) for block in talk.running_tools
        ]
        frame = self._frame if self._has_motion else None
        self._activity.show(running, talk.progress, frame, self.looks)
        self._status.show(self._status_now(), self.looks)

    def _spin(self, is_busy: bool) -> None:
        """A clock runs while something does, and only then."""
        if is_busy and self._spinning is None:
            self._spinning = self.set_interval(_SPIN if self._has_motion else _TICK, self._turn)
        elif not is_busy and self._spinning is not None:
            self._spinning.stop()
            self._spinning = None

    def _turn(self) -> None:
        self._frame += 1
        self._draw_time()

    def _status_now(self) -> Status:
        talk = self.talk
        return Status(
            mode=talk.mode,
            state=talk.state,
            model=talk.model or "…",
            fill=talk.fill,
            tokens=talk.tokens,
            cost=talk.cost,
            elapsed=float(int(talk.elapsed)),
            folder=talk.folder,
            approve=talk.approve,
            note=self._note if self._clock() < self._note_until else "",
        )

    def say(self, note: str, seconds: float = _NOTE) -> None:
        """A few words in the status bar, for a moment."""
        self._note, self._note_until = note, self._clock() + seconds
        self.draw_soon()
        self.set_timer(seconds + 0.05, self.draw_soon)

    def use_theme(self, name: str) -> None:
        """Draws in other colours from now on. Raises `ValueError`."""
        theme = theme_for(name, self.environ)
        self.looks = ThemeStyles(theme)
        self.theme = f"swink-{theme.name}"
        self.view.set_theme(theme)
        self.draw_soon()

    # -- questions ---------------------------------------------------------------------------------------------

    def show_question(self, panel: QuestionPanel, answer: asyncio.Future[ApprovalAnswer]) -> None:
        """Puts a question in the place of the input."""
        self._question, self._answer = panel, answer
        self.composer.display = False
        self.mount(panel, after=self.composer)
        panel.focus()

    def end_question(self, panel: QuestionPanel) -> None:
        """Takes it away again, answered or not."""
        self._question = self._answer = None
        self.composer.display = True
        panel.remove()
        self.composer.focus()

    def question_in_sight(self) -> None:
        """Nothing stands over a question any more, if there is one: a key that was meant for something else is none."""
        if self._question is not None:
            self._question.begin_grace()

    def on_question_panel_answered(self, message: QuestionPanel.Answered) -> None:
        message.stop()
        if message.panel is self._question and self._answer is not None and not self._answer.done():
            self._answer.set_result(message.answer)

    # -- what the person does ----------------------------------------------------------------------------------

    def on_composer_submitted(self, message: Composer.Submitted) -> None:
        message.stop()
        self.view.follow()
        if isinstance(message, Composer.Queued):
            self.talk.queue_follow_up(message.text, message.images)
        else:
            self.talk.later(self.talk.submit(message.text, message.images))

    def on_composer_queued(self, message: Composer.Queued) -> None:
        self.on_composer_submitted(message)

    def on_composer_took_back(self, message: Composer.TookBack) -> None:
        message.stop()
        if queued := self.talk.take_back():
            self.composer.give_back(queued.text, queued.images)

    @contextmanager
    def lent(self) -> Generator[None]:
        """Leaves the terminal to another program while it lasts. What runs goes on, and is drawn afterwards."""
        self._is_lent = True
        try:
            with self.suspend():
                yield
        finally:
            self._is_lent = False
        self.question_in_sight()

    def action_escape(self) -> None:
        """Closes what is open, else stops what runs."""
        if self.view.selected_block is not None:
            self.view.clear_selection()
        elif self.talk.is_running or self.talk.running_tools:
            self._stop()

    def action_interrupt(self) -> None:
        """Ctrl+C: closes what stands over all, stops what runs, copies what is marked, empties what is written; twice
        it leaves."""
        if self._is_lent:
            return  # it was for the program that has the terminal
        now = self._clock()
        is_second = now - self._interrupted_at < _TWICE
        self._interrupted_at = now
        if is_second:
            self.action_leave()
        elif isinstance(self.screen, ModalScreen):
            self.screen.dismiss(None)
            self.say("Ctrl+C again leaves", _TWICE)
        elif self.talk.is_running or self.talk.running_tools:
            self._stop()
            self.say("Ctrl+C again leaves", _TWICE)
        elif text := self.composer.selected_text or self.view.selected_text():
            self.copy_text(text)
        else:
            if self.composer.text or self.composer.images:
                self.composer.set_text("")
            self.say("Ctrl+C again leaves", _TWICE)

    def _stop(self) -> None:
        self.talk.stop()
        self._draw()

    def action_leave(self) -> None:
        self.leave(0)

    def leave(self, code: int) -> None:
        """Ends the program."""
        self.exit(code, return_code=code)

    def action_plan(self) -> None:
        self.talk.toggle_plan()

    def action_help(self) -> None:
        self.talk.later(self.talk.submit("#help"))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if len(self.screen_stack) > 1:  # a list or a question stands over it all, and has keys of its own
            return action in ("leave", "interrupt", "suspend_process")
        return self._question is None or action != "page"  # what is asked about scrolls

    def action_select_tool(self, step: int) -> None:
        self.view.select_tool(step)

    def action_toggle_tool(self) -> None:
        self.view.toggle_selected()

    def action_page(self, step: int) -> None:
        if step < 0:
            self.view.scroll_page_up(animate=False)
        else:
            self.view.scroll_page_down(animate=False)

    def action_top(self) -> None:
        self.view.scroll_home(animate=False)

    def action_bottom(self) -> None:
        self.view.follow()

    def action_search(self) -> None:
        self._search_bar.open()

    def on_search_bar_typed(self, message: SearchBar.Typed) -> None:
        message.stop()
        self._hits = self.view.search(message.query)
        self._search_bar.tell(self.view.current_hit, self._hits)

    def on_search_bar_stepped(self, message: SearchBar.Stepped) -> None:
        message.stop()
        self.view.next_hit(message.step)
        self._search_bar.tell(self.view.current_hit, self._hits)

    def on_search_bar_closed(self, message: SearchBar.Closed) -> None:
        self.view.end_search()
        if self._question is not None:
            self._question.focus()
        else:
            self.composer.focus()

    def action_mouse(self) -> None:
        """F6: the mouse is the terminal's, and back."""
        if isinstance(self._driver, TerminalDriver):
            self._has_mouse = not self._has_mouse
            self._driver.set_mouse(self._has_mouse)
        self.say("the mouse works here again" if self._has_mouse else "the mouse is the terminal's; F6: back")

    def copy_text(self, text: str) -> None:
        """Puts text onto the clipboards that there are."""
        from .clipboard import copy_beside

        self.copy_to_clipboard(text)
        copy_beside(text, self.environ)
        self.say(f"copied {len(text):,} characters")

    def on_transcript_view_selected(self, message: Any) -> None:
        if text := message.text:
            self.copy_text(text)

    async def on_event(self, event: events.Event) -> None:
        # Any key but Ctrl+C again means that leaving was not wanted.
        if isinstance(event, events.Key) and event.key != "ctrl+c":
            self._interrupted_at = -_TWICE
        await super().on_event(event)

    # -- mistakes of ours --------------------------------------------------------------------------------------

    def _handle_exception(self, error: Exception) -> None:
        self.crash = self.crash or error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """Ends the program. What Textual would print has the values of variables in it, keys among them."""
        self._close_messages_no_wait()


def _first_theme(name: str, environ: Mapping[str, str]) -> Theme:
    """The theme that is wanted; `auto` is dark unless the terminal says that its background is light."""
    if name == "auto":
        background = environ.get("COLORFGBG", "").rpartition(";")[2]
        name = "light" if background in ("7", "15") else "dark"
    return theme_for(name, environ)
