"""The full-screen program: a conversation, drawn with Textual.

Owns the layout, the keys that do not edit text, and how often the screen is drawn. `app.talk` holds the conversation,
`transcript` lays it out, and `full_screen` starts and ends the program.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.driver import Driver
from textual.screen import ModalScreen
from textual.timer import Timer

from swink_agent.app.settings.paths import data_folder
from swink_agent.app.talk.commands import COMMANDS, is_command, own_commands
from swink_agent.app.talk.conversation import Conversation
from swink_agent.app.talk.options import TalkOptions

from .attention import Attention
from .composing.completer import Completer
from .composing.prompt_history import PromptHistory
from .composing.vim import Vim
from .driver import TerminalApp, TerminalDriver
from .own_status import own_status, status_facts
from .screen_front import ScreenFront
from .status_rows import Activity, Status
from .terminal_view import TerminalView
from .themes import THEMES, Theme, is_light, theme_for
from .widgets.bars import ActivityPanel, StatusBar, TodoPanel, WaitingMessages
from .widgets.composer import Composer
from .widgets.search_bar import SearchBar
from .widgets.strips import ThemeStyles, textual_theme
from .widgets.transcript_view import TranscriptView

if TYPE_CHECKING:
    from swink_agent.approvals.approvals import ApprovalAnswer
    from swink_agent.core.approval import Defer

    from .widgets.question_panel import QuestionPanel

_FRAME = 1 / 20
"""Least seconds between two drawings of the status."""
_SPIN, _TICK = 0.1, 1.0
_TWICE = 2.0
"""Seconds within which a second Ctrl+C leaves."""
_NOTE = 4.0
_RECENT = ("recent_1", "recent_2", "recent_3")
"""The actions that resume the last sessions, on the first screen."""
_WORK = ("F7", "F8")
"""The keys for yes and no to the question whether calls in the folder may run unasked."""
_ANSWERS = 2.0
"""Seconds that the terminal has to report its background colour."""


class SwinkApp(TerminalApp[int]):
    """One conversation on the whole screen."""

    TITLE = "swink"
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None
    CSS = """
    #above { height: 1fr; }
    TranscriptView { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "leave", show=False, priority=True),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("escape", "escape", show=False),
        Binding("shift+tab", "mode", show=False, priority=True),
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
        Binding("end", "bottom", show=False),  # the draft passes this key on if the cursor is at its end
        *[Binding(f"f{number + 3}", f"resume({number})", show=False) for number in range(len(_RECENT))],
        *[Binding(key.lower(), f"work({number})", show=False) for number, key in enumerate(_WORK)],
        Binding("ctrl+t", "todo", show=False, priority=True),
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
        self.keys = options.opening.settings.key_map()
        self.shown = TerminalView()
        self.talk = Conversation(options, ScreenFront(self), self.shown)
        self._own = own_status(options, self.talk, self.draw_soon, environ)
        self._has_motion = options.has_motion
        self._clock = clock
        self._is_due = False
        self._spinning: Timer | None = None
        self._frame = 0
        self._interrupted_at = -_TWICE
        self._note = ""
        self._note_until = 0.0
        is_console = environ.get("TERM", "") == "linux"  # the console would print the query as text
        self._asks_background = options.theme == "auto" and theme.name in ("dark", "light") and not is_console
        self._has_mouse = True
        self._early: list[events.Event] | None = []
        """Keys and pastes that arrived before the input had the focus."""
        self._is_lent = False
        self._hits = 0
        self._picture_folder: TemporaryDirectory[str] | None = None
        self._question: QuestionPanel | None = None
        self._answer: asyncio.Future[ApprovalAnswer | Defer] | None = None
        self._attention = Attention(
            options.opening.settings.value("notify"),
            self._write_terminal,
            self._set_terminal_title,
            is_focused=lambda: self.app_focus,
            environ=environ,
        )
        self._long_run: float = options.opening.settings.value("notify_after")
        self._was_running = False
        self.view = TranscriptView(self.shown.transcript, theme)
        self.view.set_motion(not self._has_motion)
        self.view.set_painter(self.paint)
        history = PromptHistory(data_folder(environ) / "prompts.jsonl", self.talk.redact)
        known = (*COMMANDS, *own_commands(options.opening.project))
        completer = Completer(commands=known, folder=options.opening.folder)
        vim = Vim() if options.opening.settings.value("vim") else None
        self.composer = Composer(history=history, completer=completer, keys=self.keys, vim=vim, on_vim=self.draw_soon)
        self._search_bar = SearchBar()
        self._activity = ActivityPanel(self.looks)
        self._todo = TodoPanel(self.looks)
        self._chips = WaitingMessages()
        self._status = StatusBar(self._status_now(), self.looks)

    def compose(self) -> ComposeResult:
        with Vertical(id="above"):  # this shrinks in a low window; the input does not
            yield self.view
            yield self._search_bar
            yield self._activity
            yield self._todo
            yield self._chips
        yield self.composer
        yield self._status

    def on_mount(self) -> None:
        self.composer.focus()
        if self.terminal is not None:
            self.terminal.on_escape(self._escape_at_once)
            if self._asks_background:
                self.terminal.ask_background(self._take_background)
                self.set_timer(_ANSWERS, self._stop_asking)
        # Draw the first frame, then make the agent while the user reads it.
        self.call_after_refresh(lambda: self.talk.later(self._open_talk()))

    def on_resize(self) -> None:
        self.call_after_refresh(self.composer.fit)
        self.call_after_refresh(self._todo.fit)

    def _take_background(self, colour: str) -> None:
        """Adapts theme `auto` to the terminal's background colour, unless the user has chosen a theme meanwhile."""
        light = is_light(colour)
        if self._asks_background and light is not None:
            self._show_theme(theme_for("light" if light else "dark", self.environ))
        self._stop_asking()

    def _stop_asking(self) -> None:
        self._asks_background = False

    async def on_descendant_focus(self) -> None:
        """Passes on the keys and pastes that arrived before the input had the focus."""
        early, self._early = self._early, None
        for event in early or ():
            await self.on_event(event)

    @on(Driver.SignalResume)
    def _draw_all(self) -> None:
        """Draws the screen again when the shell gives the terminal back; Textual would leave it empty."""
        self.refresh(layout=True)

    async def _open_talk(self) -> None:
        await self.talk.open()
        self.talk.modes.offer_work(_WORK)
        await self.talk.offer_sessions([self.keys.shown(name) for name in _RECENT])

    # -- drawing -----------------------------------------------------------------------------------------------

    def draw_soon(self) -> None:
        """Draws status, queue and activity again within a frame."""
        if not self._is_due and self.is_running:
            self._is_due = True
            self.set_timer(_FRAME, self._draw)

    def _draw(self) -> None:
        self._is_due = False
        talk = self.talk
        is_busy = talk.is_running or bool(self.shown.running)
        self._tell_end(talk.is_running)
        self.composer.show_run(talk.is_running, talk.mode)
        self.composer.chips = len(talk.queue)
        self._chips.show([(queued.kind, queued.text) for queued in talk.queue])
        if self._own is not None:
            self._own.tell(status_facts(talk, self.size.width))
        self._todo.show(talk.todo, self.keys.shown("todo"), self.looks)
        self._spin(is_busy)
        self._draw_time()

    def _tell_end(self, is_running: bool) -> None:
        """Notifies the user when a long run ends."""
        was_running, self._was_running = self._was_running, is_running
        if was_running and not is_running and self.talk.elapsed >= self._long_run and self.talk.state != "aborted":
            self._attention.call("failed" if self.talk.state == "error" else "done")
        elif is_running and not was_running and self._question is None:
            self._attention.calm()

    def _write_terminal(self, text: str) -> None:
        if self.terminal is not None:
            self.terminal.write(text)

    def _set_terminal_title(self, sequence: str) -> None:
        if self.terminal is not None:
            self.terminal.set_title(sequence)

    def _draw_time(self) -> None:
        talk = self.talk
        running = [
            Activity(block.name, block.summary, self.shown.seconds_of(block), block.newest)
            for block in self.shown.running
        ]
        frame = self._frame if self._has_motion else None
        self._activity.show(running, talk.progress, frame, self.looks)
        self._status.show(self._status_now(), self.looks)

    def _spin(self, is_busy: bool) -> None:
        """Runs the spinner's timer only while something runs."""
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
            state=talk.state if self._question is None else "waits for you",
            model=talk.model or "…",
            fill=talk.usage.fill,
            tokens=talk.usage.tokens,
            cost=talk.usage.dollars,
            elapsed=float(int(talk.elapsed)),
            folder=talk.folder,
            approve=talk.approve,
            branch=talk.branch,
            hosts=len(talk.hosts),
            tasks=len(talk.tasks),
            turn=talk.usage.turns,
            vim=self.composer.vim_mode,
            own="" if self._own is None else self._own.text,
            note=self._note if self._clock() < self._note_until else "",
        )

    def say(self, note: str, seconds: float = _NOTE) -> None:
        """Shows a note in the status bar for a moment."""
        self._note, self._note_until = note, self._clock() + seconds
        self.draw_soon()
        self.set_timer(seconds + 0.05, self.draw_soon)

    def use_theme(self, name: str) -> None:
        """Changes the theme. Raises `ValueError` for an unknown name."""
        self._show_theme(theme_for(name, self.environ))
        self._stop_asking()

    def _show_theme(self, theme: Theme) -> None:
        if theme is self.looks.theme:
            return
        self.looks = ThemeStyles(theme)
        self.theme = f"swink-{theme.name}"
        self.view.set_theme(theme)
        self.draw_soon()

    # -- questions ---------------------------------------------------------------------------------------------

    def show_question(self, panel: QuestionPanel, answer: asyncio.Future[ApprovalAnswer | Defer]) -> None:
        """Shows a question instead of the input."""
        self._question, self._answer = panel, answer
        self._attention.call(f"waits for you: {panel.question.request.name}")
        self.draw_soon()
        self.composer.display = False
        self.mount(panel, after=self.composer)
        panel.focus()

    def end_question(self, panel: QuestionPanel) -> None:
        """Removes the question, answered or not."""
        self._question = self._answer = None
        self._attention.calm()
        self.draw_soon()
        self.composer.display = True
        panel.remove()
        self.composer.focus()

    def question_in_sight(self) -> None:
        """Restarts the grace period of a question that appears: keys meant for something else do not answer it."""
        if self._question is not None:
            self._question.begin_grace()

    def on_question_panel_answered(self, message: QuestionPanel.Answered) -> None:
        message.stop()
        if message.panel is self._question and self._answer is not None and not self._answer.done():
            self._answer.set_result(message.answer)

    # -- the user's actions ------------------------------------------------------------------------------------

    def on_composer_submitted(self, message: Composer.Submitted) -> None:
        message.stop()
        self.view.follow()
        text, images = message.text, message.images
        if not message.may_be_command and is_command(text):
            self.say(f"sent to the model: its {text[0]} was not in sight")
        if isinstance(message, Composer.Queued):
            self.talk.queue_follow_up(text, images, may_be_command=message.may_be_command)
        elif message.may_be_command:
            self.talk.later(self.talk.submit(text, images))
        else:
            self.talk.later(self.talk.prompt(text, images))

    def on_composer_queued(self, message: Composer.Queued) -> None:
        self.on_composer_submitted(message)

    def on_composer_took_back(self, message: Composer.TookBack) -> None:
        message.stop()
        if queued := self.talk.take_back():
            self.composer.give_back(queued.text, queued.images)

    def on_composer_editor_wanted(self, message: Composer.EditorWanted) -> None:
        message.stop()
        self.talk.later(self._edit_draft())

    async def _edit_draft(self) -> None:
        if (text := await self.talk.front.edit(self.composer.text)) is not None:
            self.composer.set_edited(text.rstrip("\n"))

    def on_composer_clipboard_wanted(self, message: Composer.ClipboardWanted) -> None:
        message.stop()
        self.talk.later(self._take_clipboard())

    async def _take_clipboard(self) -> None:
        from .clipboard import ClipboardError, read_clipboard

        outside = self.talk.opening.writable
        try:
            found = await asyncio.to_thread(read_clipboard, self.environ, outside, self._pictures())
        except ClipboardError as error:
            self.talk.notice(str(error), "warning")
            return
        if found.picture is not None:
            self.composer.attach(found.picture)
        else:
            await self.composer.paste(found.text)

    def _pictures(self) -> str:
        """Returns a temporary folder for pictures from the clipboard; it is deleted when the program ends."""
        if self._picture_folder is None:
            self._picture_folder = TemporaryDirectory(prefix="swink-")
        return self._picture_folder.name

    def on_unmount(self) -> None:
        if self._own is not None:
            self._own.close()
        if self._picture_folder is not None:
            self._picture_folder.cleanup()

    @contextmanager
    def lent(self) -> Generator[None]:
        """Lends the terminal to another program. Runs continue, and are drawn afterwards."""
        self._is_lent = True
        try:
            with self.suspend():
                yield
        finally:
            self._is_lent = False
        self.question_in_sight()

    def action_escape(self) -> None:
        """Clears the selection of a block, or else stops the run."""
        if self.view.selected_block is not None:
            self.view.clear_selection()
        elif self.talk.is_running or self.shown.running:
            self._stop()

    def _escape_at_once(self) -> None:
        """Stops a run as soon as Escape is pressed, ahead of queued messages, unless Escape would close something."""
        is_for_another = len(self.screen_stack) > 1 or self._question is not None or bool(self._search_bar.display)
        is_for_another = is_for_another or self.composer.takes_escape or self.view.selected_block is not None
        if self.talk.is_running and not is_for_another:
            self._stop()

    def action_interrupt(self) -> None:
        """Ctrl+C: closes a dialog or search, stops a run, copies the selection or empties the draft; twice leaves."""
        if self._is_lent:
            return  # the program that has the terminal gets it
        now = self._clock()
        is_second = now - self._interrupted_at < _TWICE
        self._interrupted_at = now
        if is_second:
            self.action_leave()
        elif isinstance(self.screen, ModalScreen):
            self.screen.dismiss(None)
            self.say("Ctrl+C again leaves", _TWICE)
        elif self.composer.cancel_search():
            self.say("Ctrl+C again leaves", _TWICE)
        elif self.talk.is_running or self.shown.running:
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

    def action_mode(self) -> None:
        self.talk.modes.cycle()

    def action_help(self) -> None:
        self.talk.later(self.talk.submit("/help"))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if len(self.screen_stack) > 1:  # a dialog is open, and has its own keys
            return action in ("leave", "interrupt", "suspend_process")
        return self._question is None or action != "page"  # the question scrolls instead

    def action_resume(self, number: int) -> None:
        self.talk.resume_recent(number)

    def action_work(self, number: int) -> None:
        self.talk.modes.choose_work(number)

    def action_select_tool(self, step: int) -> None:
        self.view.select_tool(step)

    def action_toggle_tool(self) -> None:
        self.view.toggle_selected()

    def action_page(self, step: int) -> None:
        self.view.scroll_pages(step)

    def action_top(self) -> None:
        self.view.scroll_to_start()

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

    def action_todo(self) -> None:
        self._todo.toggle()

    def action_mouse(self) -> None:
        """F6: gives the mouse to the terminal, and takes it back."""
        if self.terminal is not None:
            self._has_mouse = not self._has_mouse
            self.terminal.set_mouse(self._has_mouse)
        back = self.keys.shown("mouse")
        self.say("the mouse works here again" if self._has_mouse else f"the mouse is the terminal's; {back}: back")

    def copy_text(self, text: str) -> None:
        """Copies text to the terminal's and the system's clipboard."""
        from .clipboard import copy_beside

        self.copy_to_clipboard(text)
        copy_beside(text, self.environ, self.talk.opening.writable)
        self.say(f"copied {len(text):,} characters")

    def on_transcript_view_selected(self, message: Any) -> None:
        if text := message.text:
            self.copy_text(text)

    async def on_event(self, event: events.Event) -> None:
        if self._early is not None and isinstance(event, (events.Key, events.Paste)):
            self._early.append(event)  # no widget has the focus yet
            return
        # Any key but Ctrl+C again means that leaving was not wanted.
        if isinstance(event, events.Key) and event.key != "ctrl+c":
            self._interrupted_at = -_TWICE
        if isinstance(event, events.Key) and not event.is_forwarded and self.keys.given:
            usual = self._usual_key(event.key)
            if usual is None:
                return  # the user has unbound the key from its usual action
            if usual != event.key:
                event = events.Key(usual, None)
        await super().on_event(event)

    def _usual_key(self, key: str) -> str | None:
        """Returns the usual key of the action that the user bound a key to, so that no other code handles the user's
        bindings; `None` if the key has none."""
        if len(self.screen_stack) > 1:  # a dialog has its own keys; only leaving and suspending work there too
            usual = self.keys.usual(key, is_writing=False)
            return usual if usual in ("ctrl+q", "ctrl+z", None) else key
        is_writing = self._question is None and not self._search_bar.display and not self.composer.takes_raw(key)
        return self.keys.usual(key, is_writing=is_writing)


def _first_theme(name: str, environ: Mapping[str, str]) -> Theme:
    """Returns the theme to start with. `auto` is dark unless COLORFGBG names a light background; if the terminal
    reports its background later, the theme follows it."""
    if name == "auto":
        background = environ.get("COLORFGBG", "").rpartition(";")[2]
        name = "light" if background in ("7", "15") else "dark"
    return theme_for(name, environ)
