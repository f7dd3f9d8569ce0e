"""Where prompts are written: an editor of several lines with history, completion, folded pastes and pictures.

Owns what its keys mean beyond editing (`draft_view`): sending, queueing, walking and searching the history, choosing
a completion. What is sent goes to whoever listens; nothing is run here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message

from swink_agent.rendering.cells import cut

from ..composing.completer import Completer, Completion, TypedWord
from ..composing.draft import Draft
from ..composing.history import HistorySearch, HistoryWalk, PromptHistory
from ..composing.pasting import folded_label, image_files, image_label, may_name_images
from .completion_list import CompletionList
from .draft_view import DraftView

__all__ = ["Composer"]

_NEW_LINE = frozenset({"shift+enter", "alt+enter", "ctrl+j", "ctrl+enter", "alt+shift+enter"})
_PATIENCE = 1.0
"""Seconds that the disk has to say whether a pasted name is that of a picture."""
_PLACEHOLDER = "Ask, or describe a task   ·   @ files   / commands   ! shell"
_SIGN = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"
_RUNNING = "Enter steers · Tab queues · Esc stops"


class Composer(Vertical):
    """The editor with its list of completions. Give it the focus with `focus()`."""

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
        """Enter was pressed: a prompt to send, or, while something runs, to steer with."""

        def __init__(self, text: str, images: tuple[str, ...] = ()) -> None:
            super().__init__()
            self.text = text
            self.images = images

    class Queued(Submitted):
        """Tab was pressed while something runs: a prompt for afterwards."""

    class TookBack(Message):
        """Up was pressed with nothing written, while messages are waiting: the last of them is wanted back."""

    def __init__(self, *, history: PromptHistory, completer: Completer) -> None:
        super().__init__()
        self.chips = 0
        """How many messages are waiting; they can be taken back."""
        self._history = history
        self._completer = completer
        self._view = DraftView(
            on_key=self._key,
            on_paste=self._paste,
            on_change=self._changed,
            sign=_SIGN,
            placeholder=_PLACEHOLDER,
            border_rows=2,
        )
        self._list = CompletionList()
        self._is_running = False
        self._mode = "Execute"
        self._walk: HistoryWalk | None = None
        self._search: HistorySearch | None = None
        self._walked = ""
        self._aside: Draft | None = None
        self._closed_at: int | None = None
        self._looking: asyncio.Task[None] | None = None
        self._wanted: TypedWord | None = None

    def compose(self) -> ComposeResult:
        yield self._list
        yield self._view

    def on_unmount(self) -> None:
        self._completer.close()
        if self._looking is not None:
            self._looking.cancel()

    # -- what it holds -----------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """All that is written, with the whole text of folded pastes."""
        return self._view.draft.sent().text

    @property
    def images(self) -> tuple[str, ...]:
        """The paths of the pictures that are attached."""
        return self._view.draft.sent().images

    @property
    def selected_text(self) -> str:
        """What is selected in it, to be copied."""
        return self._view.draft.selected

    @property
    def is_running(self) -> bool:
        """Whether a run is under way, in which Tab queues what is written."""
        return self._is_running

    @is_running.setter
    def is_running(self, value: bool) -> None:
        if value != self._is_running:
            self._is_running = value
            self._tell()

    @property
    def mode(self) -> str:
        """The mode that the border shows by its colour: "Plan" or "Execute"."""
        return self._mode

    @mode.setter
    def mode(self, value: str) -> None:
        if value != self._mode:
            self._mode = value
            self.set_class(value == "Plan", "-plan")
            self._tell()

    @property
    def placeholder(self) -> str:
        """What stands there while nothing is written."""
        return self._view.placeholder

    @placeholder.setter
    def placeholder(self, text: str) -> None:
        self._view.placeholder = text

    def set_text(self, text: str) -> None:
        """Another text in the place of all that is written."""
        self._end_search()
        self._walk = None
        self._view.draft.set(text)
        self._view.changed()

    def give_back(self, text: str, images: Sequence[str] = ()) -> None:
        """Puts what was sent and came back before what is written, with its pictures."""
        self._end_search()
        self._walk = None
        self._view.draft.put_before(text, [(image_label(path), path) for path in images])
        self._view.changed()

    def insert(self, text: str) -> None:
        """Puts text at the cursor."""
        self._end_search()
        self._view.draft.insert(text)
        self._view.changed()

    def attach(self, path: str) -> None:
        """Attaches a picture, shown as a token at the cursor."""
        self._view.draft.insert_token("image", image_label(path), path)
        self._view.changed()

    def focus(self, scroll_visible: bool = True) -> Composer:
        self._view.focus(scroll_visible)
        return self

    def _tell(self) -> None:
        """The words in the border."""
        search = self._search
        if search is not None:
            sign = "no such prompt" if search.has_failed else "history"
            # As content: what is searched for is no markup, whatever is in it.
            self._view.border_title = Content(f"{sign}: {cut(search.query, 40)}▏")
            self._view.border_subtitle = "Enter takes it · Ctrl+R older · Esc back"
            return
        self._view.border_title = "Plan" if self._mode == "Plan" else ""
        self._view.border_subtitle = _RUNNING if self._is_running else ""

    # -- keys --------------------------------------------------------------------------------------------------

    def _key(self, event: events.Key) -> bool:
        """What a key does that is no editing; whether it is such a key."""
        if self._search is not None:
            return self._search_key(event)
        key = event.key
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
        else:
            return False
        return True

    def _send(self, kind: type[Submitted]) -> None:
        text, images = self._view.draft.sent()
        text = text.strip("\n").rstrip()
        if not text.strip() and not images:
            return
        self._history.add(text)
        self._view.draft.clear()
        self._walk = self._aside = None
        self._view.changed()
        self.post_message(kind(text, images))

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
            self._aside = draft
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
            self._show(self._aside or Draft())
        return True

    def _show(self, draft: Draft, *, keeps_walk: bool = False) -> None:
        """Another draft in the place of this one, without what would be completed in it."""
        if not keeps_walk:
            self._walk = self._aside = None
        self._view.draft = draft
        self._walked = draft.text
        self._close_list(remember=True)
        self._view.update()

    def _begin_search(self) -> None:
        self._search = HistorySearch(self._history)
        self._aside = self._view.draft
        self._walk = None
        self._close_list(remember=True)
        self._tell()

    def _end_search(self, *, takes: bool = True) -> None:
        if self._search is None:
            return
        self._search = None
        self._view.highlight(None)
        aside, self._aside = self._aside, None
        if not takes and aside is not None:
            self._show(aside)
        self._tell()

    def _search_key(self, event: events.Key) -> bool:
        search, key = self._search, event.key
        assert search is not None
        if key in ("escape", "ctrl+g", "ctrl+c"):
            self._end_search(takes=False)
            return True
        if key in ("ctrl+r", "up"):
            search.older()
        elif key in ("ctrl+s", "down"):
            search.newer()
        elif key in ("backspace", "ctrl+h"):
            search.rub_out()
        elif event.is_printable and event.character is not None:
            search.type(event.character)
        else:
            self._end_search()
            return key in ("enter", "tab", *_NEW_LINE)  # another key does what it does, to what was found
        if search.found is not None:
            draft = Draft(search.found)
            draft.move(search.at)
            self._view.draft = draft
            self._view.highlight((search.at, search.at + len(search.query)))
        elif self._aside is not None:
            self._view.draft = self._aside
            self._view.highlight(None)
        self._tell()
        return True

    # -- completion --------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        if self._walk is not None and self._view.draft.text != self._walked:
            self._walk = None  # a prompt of the history that was changed is a new one
        self._complete()

    def _complete(self, *, is_asked: bool = False) -> None:
        draft = self._view.draft
        wanted = None if draft.selection else self._completer.wanted(draft.text, draft.cursor)
        if wanted is None:
            self._closed_at = None
            self._close_list()
            return
        if wanted.start == self._closed_at and not is_asked:
            return
        self._closed_at = None
        self._wanted = wanted
        if wanted.kind == "command":
            self._list.show(self._completer.commands(wanted))
        else:
            if self._looking is not None:
                self._looking.cancel()
            self._looking = asyncio.create_task(self._look(wanted))

    async def _look(self, wanted: TypedWord) -> None:
        try:
            found = await self._completer.files(wanted)
        except OSError:
            found = []
        if self._wanted == wanted:
            self._list.show(found)

    def _close_list(self, *, remember: bool = False) -> None:
        """Closes the list; with `remember` it opens no more for what is being typed."""
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
                return False  # it is all there: the key sends it
            self._take(chosen, wanted)
        else:
            return False
        return True

    def _take(self, completion: Completion, wanted: TypedWord) -> None:
        """Puts a completion into the text; behind a folder more may be typed at once."""
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

    async def _paste(self, text: str) -> None:
        self._end_search()
        text = text.replace("\r\n", "\n").replace("\r", "\n")  # most terminals paste lines as if Enter were pressed
        if may_name_images(text):
            try:
                looking = self._completer.beside(lambda: image_files(text, self._completer.folder))
                images = await asyncio.wait_for(looking, _PATIENCE)
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
