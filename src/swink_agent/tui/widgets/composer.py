"""The input for prompts: a multi-line editor with history, completion, folded pastes and pictures.

Owns the keys beyond editing, which `draft_view` does: sending, queueing, stepping through and searching the history,
choosing a completion. It posts prompts as messages and runs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message

from swink_agent.app.settings.key_bindings import KeyMap
from swink_agent.core.waits import in_own_thread
from swink_agent.rendering.cells import cut

from ..composing.completer import Completer, Completion, TypedWord
from ..composing.draft import Draft, plain_text
from ..composing.pasting import folded_label, image_files, image_label, may_name_images
from ..composing.prompt_history import HistorySearch, HistoryWalk, PromptHistory
from ..composing.vim import Vim
from .completion_list import CompletionList
from .draft_view import DraftView

_NEW_LINE = frozenset({"shift+enter", "alt+enter", "ctrl+j", "ctrl+enter", "alt+shift+enter"})
_CHOOSING = frozenset({"escape", "up", "ctrl+p", "down", "ctrl+n", "enter", "tab"})
_IMAGE_CHECK_SECONDS = 1.0
"""Most seconds for the check on the disk whether pasted names are pictures or PDFs."""
_PLACEHOLDER = "Ask, or describe a task   ·   @ files   / commands   ! shell"
_SIGN = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"


class Composer(Vertical):
    """The editor with its list of completions."""

    DEFAULT_CSS = """
    Composer {
        height: auto;
        width: 1fr;
        & > DraftView {
            border: round $accent 60%;
            border-title-color: $text-muted;
            border-title-style: none;
            border-subtitle-color: $text-muted;
            border-subtitle-style: none;
            padding: 0 1;
            height: 3;
        }
        & > DraftView:focus { border: round $accent; }
        &.-plan > DraftView { border: round $warning 60%; border-title-color: $warning; }
        &.-plan > DraftView:focus { border: round $warning; }
        &.-plan > DraftView > .draft--sign { color: $text-warning; }
    }
    """
    ALLOW_SELECT: ClassVar[bool] = False

    class Submitted(Message):
        """The user pressed Enter: a prompt to send, or to steer with during a run.

        `may_be_command` is whether a `!` or `/` at the beginning makes it a command, because the user typed the
        beginning or can see it.
        """

        def __init__(self, text: str, images: tuple[str, ...] = (), *, may_be_command: bool = True) -> None:
            super().__init__()
            self.text = text
            self.images = images
            self.may_be_command = may_be_command

    class Queued(Submitted):
        """The user pressed Tab during a run: a prompt to send after it."""

    class TookBack(Message):
        """The user pressed Up in an empty draft while messages are queued: the last of them is to be taken back."""

    class EditorWanted(Message):
        """The user pressed Ctrl+G to edit the draft in their own editor."""

    class ClipboardWanted(Message):
        """The user pressed Ctrl+V to paste the picture or the text on the clipboard."""

    def __init__(
        self,
        *,
        history: PromptHistory,
        completer: Completer,
        keys: KeyMap | None = None,
        vim: Vim | None = None,
        on_vim: Callable[[], None] | None = None,
    ) -> None:
        """`vim` gives the input the keys of vim; `on_vim` is called when its mode has changed."""
        super().__init__()
        self._vim = vim
        self._on_vim = on_vim
        self._keys = KeyMap() if keys is None else keys
        self.chips = 0
        """The number of queued messages, which the user can take back."""
        self._history = history
        self._completer = completer
        self._view = DraftView(
            on_key=self._key,
            on_paste=self.paste,
            on_change=self._changed,
            sign=_SIGN,
            placeholder=_PLACEHOLDER,
            border_rows=2,
        )
        # Rows of the window without the draft, its frame, the status bar and one row of conversation.
        self._list = CompletionList(lambda: self.screen.size.height - self._view.seen_rows - 4)
        self._is_running = False
        self._mode = "Execute"
        self._walk: HistoryWalk | None = None
        self._search: HistorySearch | None = None
        self._walked = ""
        self._saved_draft: Draft | None = None
        self._closed_at: int | None = None
        self._file_search: asyncio.Task[None] | None = None
        self._wanted: TypedWord | None = None

    def compose(self) -> ComposeResult:
        yield self._list
        yield self._view

    def on_unmount(self) -> None:
        self._completer.close()
        if self._file_search is not None:
            self._file_search.cancel()

    # -- content -----------------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The whole draft, with the full text of folded pastes."""
        return self._view.draft.sent().text

    @property
    def images(self) -> tuple[str, ...]:
        return self._view.draft.sent().images

    @property
    def selected_text(self) -> str:
        return self._view.draft.selected

    @property
    def takes_escape(self) -> bool:
        """Whether Escape would close the completions or the history search, or is a key of vim here."""
        is_vims = self._vim is not None and self._vim.takes_escape
        return is_vims or self._list.is_open or self._search is not None

    @property
    def vim_mode(self) -> str:
        """The mode of the keys of vim; empty without them."""
        return "" if self._vim is None else self._vim.mode

    def takes_raw(self, key: str) -> bool:
        """Whether the completions or the history search need the key as it is, whatever the user bound it to."""
        is_redo = self.vim_mode == "NORMAL" and key == "ctrl+r"
        return is_redo or self._search is not None or (self._list.is_open and key in _CHOOSING)

    def fit(self) -> None:
        """Adapts to a new height of the window."""
        self._view.update()
        self._list.fit()

    def show_run(self, is_running: bool, mode: str) -> None:
        """Shows in the border whether a run is in progress, so that Tab queues the draft, and the mode."""
        if (is_running, mode) != (self._is_running, self._mode):
            self._is_running, self._mode = is_running, mode
            self.set_class(mode == "Plan", "-plan")
            self._update_border()

    def set_text(self, text: str) -> None:
        self._end_search()
        self._walk = None
        self._view.draft.set(text)
        self._view.changed()

    def set_edited(self, text: str) -> None:
        """Replaces the draft with the text from an editor; pictures whose labels are still in it stay attached."""
        draft = self._view.draft
        kept = [draft.tokens[part] for part in draft.text if part in draft.tokens]
        pictures = [token.content for token in kept if token.kind == "image" and token.label in text]
        self.set_text("")
        self.give_back(text, pictures)

    def give_back(self, text: str, images: Sequence[str] = ()) -> None:
        """Puts a message that was taken back, with its pictures, before the draft."""
        self._end_search()
        self._walk = None
        self._view.draft.put_before(text, [(image_label(path), path) for path in images])
        self._view.changed()

    def attach(self, path: str) -> None:
        """Attaches a picture, shown as a token at the cursor."""
        self._view.draft.insert_token("image", image_label(path), path)
        self._view.changed()

    def focus(self, scroll_visible: bool = True) -> Composer:
        self._view.focus(scroll_visible)
        return self

    def _update_border(self) -> None:
        """Shows the mode, the keys or the history search in the border."""
        search = self._search
        if search is not None:
            sign = "no such prompt" if search.has_failed else "history"
            # `Content`, because Textual would read a plain string as markup.
            self._view.border_title = Content(f"{sign}: {cut(search.query, 40)}▏")
            self._view.border_subtitle = f"Enter takes it · {self._keys.shown('history') or 'Up'} older · Esc back"
            return
        self._view.border_title = "Plan" if self._mode == "Plan" else ""
        words = [(self._keys.shown("send"), "steers"), (self._keys.shown("queue"), "queues"), ("Esc", "stops")]
        hint = " · ".join([f"{key} {does}" for key, does in words if key])
        self._view.border_subtitle = hint if self._is_running else ""

    # -- keys --------------------------------------------------------------------------------------------------

    def _key(self, event: events.Key) -> bool:
        """Handles a key that does not edit; returns whether it is one."""
        if self._search is not None:
            return self._search_key(event)
        key = event.key
        if self._vim is not None and self._vim_key(self._vim, event):
            return True
        if self._list.is_open and self._choice_key(key):
            return True
        if key == "enter":
            self._send(self.Submitted)
        elif key in _NEW_LINE:
            self._view.draft.insert("\n")
            self._view.changed()
        elif key == "tab":
            if self._is_running:
                self._send(self.Queued)
        elif key in ("up", "ctrl+p"):
            return self._up(key)
        elif key in ("down", "ctrl+n"):
            return self._down(key)
        elif key == "ctrl+r":
            self._begin_search()
        elif key == "ctrl+o":
            self._open_token()
        elif key == "ctrl+g":
            self.post_message(self.EditorWanted())
        elif key == "ctrl+v":
            self.post_message(self.ClipboardWanted())
        else:
            return False
        return True

    def _vim_changed(self) -> None:
        if self._on_vim is not None:
            self._on_vim()

    def _vim_key(self, vim: Vim, event: events.Key) -> bool:
        """Gives a key to vim; returns whether it was one of its keys."""
        mode = vim.mode
        taken = vim.press(event.key, event.character if event.is_printable else None, self._view.draft)
        if taken in ("up", "down"):
            (self._up if taken == "up" else self._down)(taken)
            vim.clamp(self._view.draft)
            self._view.update()
        elif taken == "done":
            self._view.changed()
        if vim.mode != mode:
            self._vim_changed()
        return taken != "pass"

    def _send(self, kind: type[Submitted]) -> None:
        text, images = self._view.draft.sent()
        text = text.strip("\n").rstrip()
        if not text.strip() and not images:
            return
        draft = self._view.draft
        may_be_command = not draft.begins_with_token and (draft.is_start_typed or self._view.is_start_in_sight)
        self._history.add(text)
        draft.clear()
        if self._vim is not None:
            self._vim.reset()
            self._vim_changed()
        self._walk = self._saved_draft = None
        self._view.changed()
        self.post_message(kind(text, images, may_be_command=may_be_command))

    def _open_token(self) -> None:
        token = self._view.draft.open_token()
        if token is None:
            return
        if token.kind == "image":
            self.notify(f"{token.label} is {token.content}", markup=False)
        else:
            self._view.changed()

    # -- history -----------------------------------------------------------------------------------------------

    def _up(self, key: str) -> bool:
        draft = self._view.draft
        if key == "up" and self._view.edit(events.Key("up", None)):
            self._view.changed()
            return True
        if draft.is_empty and self.chips > 0 and self._walk is None:
            self.post_message(self.TookBack())
            return True
        if self._walk is None:
            self._walk = HistoryWalk(self._history, draft.sent().text)
            self._saved_draft = draft
        older = self._walk.older()
        if older is not None:
            self._show(Draft(older), keeps_walk=True)
        elif self._walk.is_at_end:
            self._walk = None
        return True

    def _down(self, key: str) -> bool:
        if key == "down" and self._view.edit(events.Key("down", None)):
            self._view.changed()
            return True
        if self._walk is None:
            return False
        newer = self._walk.newer()
        if newer is not None:
            self._show(Draft(newer), keeps_walk=True)
        else:
            self._show(self._saved_draft or Draft())
        return True

    def _show(self, draft: Draft, *, keeps_walk: bool = False) -> None:
        """Replaces the draft and closes the completions."""
        if not keeps_walk:
            self._walk = self._saved_draft = None
        if self._vim is not None:
            self._vim.drop(self._view.draft)
        self._view.draft = draft
        self._walked = draft.text
        self._close_list(remember=True)
        self._view.update()

    def _begin_search(self) -> None:
        self._search = HistorySearch(self._history)
        self._saved_draft = self._view.draft
        self._walk = None
        self._close_list(remember=True)
        self._update_border()

    def cancel_search(self) -> bool:
        """Ends the search of the history and shows the draft again. Returns whether there was a search."""
        is_searching = self._search is not None
        self._end_search(takes=False)
        return is_searching

    def _end_search(self, *, takes: bool = True) -> None:
        if self._search is None:
            return
        self._search = None
        self._view.highlight(None)
        saved, self._saved_draft = self._saved_draft, None
        if not takes and saved is not None:
            self._show(saved)
        self._update_border()

    def _search_key(self, event: events.Key) -> bool:
        search, key = self._search, event.key
        assert search is not None
        if key in ("escape", "ctrl+g"):
            return self.cancel_search()
        if key == "up" or key in self._keys.keys_of("history"):
            search.older()
        elif key in ("ctrl+s", "down"):
            search.newer()
        elif key in ("backspace", "ctrl+h"):
            search.rub_out()
        elif event.is_printable and event.character is not None:
            search.type(event.character)
        else:
            self._end_search()
            return key in ("enter", "tab", *_NEW_LINE)  # every other key then edits the prompt that was found
        if search.found is not None:
            draft = Draft(search.found)
            draft.move(search.at)
            self._view.draft = draft
            self._view.highlight((search.at, search.at + len(search.query)))
        elif self._saved_draft is not None:
            self._view.draft = self._saved_draft
            self._view.highlight(None)
        self._update_border()
        return True

    # -- completion --------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        if self._walk is not None and self._view.draft.text != self._walked:
            self._walk = None  # an edited prompt of the history is a new prompt
        self._complete()

    def _complete(self) -> None:
        draft = self._view.draft
        is_moving = self.vim_mode not in ("", "INSERT")
        wanted = None if draft.selection or is_moving else self._completer.wanted(draft.text, draft.cursor)
        if wanted is None:
            self._closed_at = None
            self._close_list()
            return
        if wanted.start == self._closed_at:
            return
        self._closed_at = None
        self._wanted = wanted
        if wanted.kind == "command":
            self._list.show(self._completer.commands(wanted))
        else:
            if self._file_search is not None:
                self._file_search.cancel()
            self._file_search = asyncio.create_task(self._find_files(wanted))

    async def _find_files(self, wanted: TypedWord) -> None:
        while True:
            try:
                found = await self._completer.files(wanted)
            except OSError:
                found = []
            if self._wanted != wanted:
                return
            is_reading = self._completer.is_reading
            self._list.show(found, self._completer.note)
            if not is_reading:
                return
            await self._completer.more()

    def _close_list(self, *, remember: bool = False) -> None:
        """Closes the list; with `remember` it stays closed for the current word."""
        wanted, self._wanted = self._wanted, None
        if remember:
            self._closed_at = wanted.start if wanted is not None else None
        self._list.close()

    def _choice_key(self, key: str) -> bool:
        chosen, wanted = self._list.chosen, self._wanted
        if key == "escape":
            self._close_list(remember=True)
        elif key in ("up", "ctrl+p"):
            self._list.step(-1)
        elif key in ("down", "ctrl+n"):
            self._list.step(1)
        elif key in ("enter", "tab") and chosen is not None and wanted is not None:
            typed = self._view.draft.text[wanted.start : wanted.end]
            if key == "enter" and typed == chosen.text:
                self._close_list()
                return False  # already complete: Enter sends the prompt
            self._take(chosen, wanted)
        else:
            return False
        return True

    def _take(self, completion: Completion, wanted: TypedWord) -> None:
        """Inserts a completion, followed by a space except after a folder, whose path the user may continue."""
        draft = self._view.draft
        behind = draft.text[wanted.end : wanted.end + 1]
        is_folder = completion.label.endswith("/") and wanted.kind == "file"
        text = completion.text.removesuffix('"') if is_folder else completion.text
        draft.replace(wanted.start, wanted.end, text if is_folder or behind.isspace() else f"{text} ")
        self._close_list()
        self._view.changed()

    def on_completion_list_picked(self, event: CompletionList.Picked) -> None:
        event.stop()
        if self._wanted is not None:
            self._take(event.completion, self._wanted)
        self.focus()

    # -- pastes ------------------------------------------------------------------------------------------------

    async def paste(self, text: str) -> None:
        """Inserts pasted text: folded if it is long, or as attachments if it names only pictures and PDFs."""
        self._end_search()
        if self._vim is not None:
            self._vim.leave_visual(self._view.draft)
        text = plain_text(text)  # most terminals paste line ends as carriage returns
        if may_name_images(text):
            try:
                checking = in_own_thread(lambda: image_files(text, self._completer.folder))
                images = await asyncio.wait_for(checking, _IMAGE_CHECK_SECONDS)
            except TimeoutError:
                images = []
            for path in images:
                self.attach(path)
            if images:
                return
        label = folded_label(text)
        if label is None:
            self._view.draft.insert(text)
        else:
            self._view.draft.insert_token("paste", label, text)
        self._view.changed()
