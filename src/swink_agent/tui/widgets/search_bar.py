"""The search bar: a row with the search text and the number of hits.

Owns the row and its keys. The screen that searches listens to `Typed` and `Stepped` and reports the result with `tell`.
"""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Static

from .draft_view import DraftView


class SearchBar(Horizontal):
    """Hidden until `open`; `close` or Escape hides it again."""

    DEFAULT_CSS = """
    SearchBar {
        display: none;
        height: 1;
        width: 1fr;
        padding: 0 1;
        background: $surface;
        & > DraftView { width: 1fr; height: 1; background: $surface; }
        & > Static { width: auto; color: $text-muted; background: $surface; }
    }
    """

    class Typed(Message):
        def __init__(self, query: str) -> None:
            super().__init__()
            self.query = query

    class Stepped(Message):
        """The user wants another hit: 1 is the next, -1 the previous (older) one."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    class Closed(Message):
        """The user ended the search."""

    def __init__(self) -> None:
        super().__init__()
        self._view = DraftView(
            on_key=self._key, on_change=self._changed, placeholder="Search the transcript", sign="/", most_rows=1
        )
        self._count_text = Static("", markup=False)

    def compose(self) -> ComposeResult:
        yield self._view
        yield self._count_text

    @property
    def query_text(self) -> str:
        return self._view.draft.text

    def open(self) -> None:
        """Shows the row with the previous search text selected, and focuses it."""
        self.styles.display = "block"
        self._view.draft.move(0)
        self._view.draft.move(len(self._view.draft.text), selects=True)
        self._view.focus()
        self._view.update()

    def close(self) -> None:
        self.styles.display = "none"

    def tell(self, at: int, total: int) -> None:
        """Shows that hit number `at` (from 1) of `total` is the current one."""
        if not self.query_text:
            self._count_text.update("")
        elif total:
            self._count_text.update(f" {at:,} of {total:,}  ↑↓ Enter  Esc ")
        else:
            self._count_text.update(" not found  Esc ")

    def _key(self, event: events.Key) -> bool:
        match event.key:
            case "escape":
                self.close()
                self.post_message(self.Closed())
            case "enter" | "down" | "f3" | "ctrl+n" | "ctrl+g":
                self.post_message(self.Stepped(1))
            case "up" | "shift+enter" | "shift+f3" | "ctrl+p" | "ctrl+f":
                self.post_message(self.Stepped(-1))
            case "tab" | "ctrl+j" | "alt+enter":
                pass
            case _:
                return False
        return True

    def _changed(self) -> None:
        self.post_message(self.Typed(self.query_text))
