"""A text editor widget: shows a draft with cursor and selection, and edits it by keys and mouse.

Owns drawing and editing. A key repaints only the rows that it changed; the layout changes only with the number of rows.
The cursor does not blink, so there are no timers. `on_key` sees every key first and may handle it; `on_change` is
called when the text or the cursor position changes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ClassVar, cast

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Offset, Region, Size
from textual.strip import Strip
from textual.widget import Widget

from swink_agent.app.settings.key_bindings import ACTIONS
from swink_agent.rendering.cells import cell_width, cut

from ..composing.draft import Draft
from ..composing.layout import Layout, Row
from ..driver import RefusedPaste
from ..keystrokes import LARGEST_PASTE

if TYPE_CHECKING:
    from textual.app import App

KeyFn = Callable[[events.Key], bool]
PasteFn = Callable[[str], Awaitable[None]]
_DELETING = {key: action.name for action in ACTIONS if action.name.startswith("delete_") for key in action.keys}
"""The keys that delete, with the names of the methods of `Draft` that they call."""
_GUTTER = 2
_ROWS_AROUND = 6
"""Rows of the window that a draft leaves free for its frame, the status bar and the list of completions."""


class DraftView(Widget, can_focus=True):
    """Shows a draft and edits it. It grows up to `most_rows` rows if the window is tall enough, and then scrolls."""

    ALLOW_SELECT: ClassVar[bool] = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"draft--{name}" for name in ("sign", "placeholder", "token", "selection", "match", "cursor")
    }
    DEFAULT_CSS = """
    DraftView {
        height: 1;
        width: 1fr;
        & > .draft--sign { color: $text-accent; text-style: bold; }
        & > .draft--placeholder { color: $text-muted; }
        & > .draft--token { color: $text-accent; background: $accent 15%; }
        & > .draft--selection { background: $accent 40%; }
        & > .draft--match { text-style: bold underline; color: $text-accent; }
        & > .draft--cursor { text-style: reverse; }
    }
    """

    def __init__(
        self,
        *,
        on_key: KeyFn | None = None,
        on_paste: PasteFn | None = None,
        on_change: Callable[[], None] | None = None,
        placeholder: str = "",
        sign: str = ">",
        most_rows: int = 10,
        border_rows: int = 0,
    ) -> None:
        super().__init__()
        self.draft = Draft()
        self.sign = sign
        self._on_key_first = on_key
        self._on_paste_first = on_paste
        self._on_change = on_change
        self._placeholder = placeholder
        self._most_rows = most_rows
        self._border_rows = border_rows
        self._layout_of_draft = Layout()
        self._top = 0
        self._column: int | None = None
        self._match: tuple[int, int] | None = None
        self._drawn: tuple[list[Row], int, tuple[int, int] | None, tuple[int, int] | None] = ([], 0, None, None)
        self._pressed_at: int | None = None
        self._styles_of: dict[str, Style] = {}

    # -- drawing -----------------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """The number of rows of the draft at this width, visible or not."""
        return len(self._layout_of_draft.rows)

    @property
    def is_start_in_sight(self) -> bool:
        """Whether the first row of the text is visible."""
        _, row = self._layout_of_draft.cell_of(self.draft.start)
        return self._top <= row < self._top + self.seen_rows

    @property
    def seen_rows(self) -> int:
        room = self.screen.size.height - _ROWS_AROUND if self.is_attached else self._most_rows
        return max(1, min(self.rows, self._most_rows, room))

    def highlight(self, match: tuple[int, int] | None) -> None:
        """Highlights a range of the text, such as a search hit; `None` removes the highlight."""
        self._match = match
        self.update()

    def update(self) -> None:
        """Redraws after a change of the draft: repaints the changed rows, and adapts the height to their number."""
        width = self.content_size.width - _GUTTER
        if width <= 0 or not self.is_attached:
            return
        layout = self._layout_of_draft
        layout.update(self.draft.text, width, self.draft.tokens)
        column, at = layout.cell_of(self.draft.cursor)
        shown = self.seen_rows
        top = max(0, min(self._top, len(layout.rows) - shown))
        top = min(top, at) if at < top else max(top, at - shown + 1)
        before, was_at, *marks = self._drawn
        self._drawn = (layout.rows, at, self.draft.selection, self._match)
        height = shown + self._border_rows
        is_taller = self.styles.height is None or self.styles.height.value != height
        if is_taller:
            self.styles.height = height
        if is_taller or top != self._top or not before or marks != [self.draft.selection, self._match]:
            self._top = top
            self.refresh()
        else:
            after = layout.rows
            changed = {was_at, at} | {
                number
                for number in range(top, min(top + shown, max(len(before), len(after))))
                if number >= len(before) or number >= len(after) or before[number].pieces != after[number].pieces
            }
            self.refresh(*[Region(0, number - top, width + _GUTTER, 1) for number in changed if number >= top])
        if self.has_focus:  # the terminal's own cursor, because input methods open their windows there
            app = cast("App[object]", self.app)  # pyright: ignore[reportUnknownMemberType]
            app.cursor_position = self.content_region.offset + Offset(column + _GUTTER, at - top)

    def _style(self, name: str) -> Style:
        found = self._styles_of.get(name)
        if found is None:
            found = self.rich_style if name == "" else self.get_component_rich_style(f"draft--{name}")
            self._styles_of[name] = found
        return found

    def notify_style_update(self) -> None:
        self._styles_of.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        base = self._style("")
        number = y + self._top
        sign = f"{self.sign} " if number == 0 else "  "
        segments = [Segment(sign, self._style("sign"))]
        if self.draft.is_empty and number == 0:
            segments += self._placeholder_segments(width - _GUTTER, base)
        elif number < len(self._layout_of_draft.rows):
            segments += self._row_segments(self._layout_of_draft.rows[number], number, base)
        used = sum([cell_width(segment.text) for segment in segments])
        if used < width:
            segments.append(Segment(" " * (width - used), base))
        strip = Strip(segments, max(used, width))
        return strip if used <= width else strip.crop(0, width)

    def _placeholder_segments(self, width: int, base: Style) -> list[Segment]:
        text = cut(self._placeholder, width) or " "
        dim = self._style("placeholder")
        first = dim + self._style("cursor") if self.has_focus else dim
        return [Segment(text[:1], first), Segment(text[1:], dim)]

    def _row_segments(self, row: Row, number: int, base: Style) -> list[Segment]:
        cursor = self.draft.cursor if self.has_focus and self._drawn[1] == number else -1
        selection, match = self.draft.selection, self._match
        segments: list[Segment] = []
        for piece in row.pieces:
            place = row.start + piece.place
            style = self._style("token") if piece.is_token else base
            if match is not None and match[0] <= place < match[1]:
                style += self._style("match")
            if selection is not None and selection[0] <= place < selection[1]:
                style += self._style("selection")
            if place == cursor:
                style += self._style("cursor")
            if segments and segments[-1].style is style:
                segments[-1] = Segment(segments[-1].text + piece.text, style)
            else:
                segments.append(Segment(piece.text, style))
        if cursor == row.end and (not row.pieces or row.start + row.pieces[-1].place < cursor):
            segments.append(Segment(" ", base + self._style("cursor")))
        return segments

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self.seen_rows

    # -- keys --------------------------------------------------------------------------------------------------

    async def on_key(self, event: events.Key) -> None:
        is_taken = self._on_key_first is not None and self._on_key_first(event)
        if is_taken or self.edit(event):
            event.stop()
            event.prevent_default()
            if not is_taken:
                self.changed()

    async def on_paste(self, event: events.Paste) -> None:
        # Handled here and not in the parent, so that a key after the paste cannot overtake it.
        event.stop()
        event.prevent_default()
        if self._on_paste_first is not None:
            await self._on_paste_first(event.text)
        else:
            self.draft.insert(" ".join(event.text.split()))
            self.changed()

    def on_refused_paste(self, event: RefusedPaste) -> None:
        event.stop()
        self.notify(
            f"The paste has {event.characters:,} characters, more than the limit of {LARGEST_PASTE:,}: "
            "save it as a file and give its name",
            severity="warning",
            markup=False,
        )

    def changed(self) -> None:
        """Redraws after a change and calls `on_change`, directly: a message would cost as much as the key itself."""
        self.update()
        if self._on_change is not None:
            self._on_change()

    def edit(self, event: events.Key) -> bool:
        """Applies an editing key to the draft; returns whether it is one."""
        draft, key = self.draft, event.key
        if event.is_printable and event.character is not None:
            draft.insert(event.character, is_typed=True)
            self._column = None
            return True
        if key in ("up", "down", "shift+up", "shift+down"):
            return self._move_by_rows(-1 if key.endswith("up") else 1, selects=key.startswith("shift"))
        self._column = None
        return self._delete(key) or self._move(key) or self._undo_or_yank(key)

    def _delete(self, key: str) -> bool:
        name = _DELETING.get(key)
        if name is None or (key == "ctrl+d" and self.draft.is_empty):
            return False
        getattr(self.draft, name)()
        return True

    def _move(self, key: str) -> bool:
        draft, plain = self.draft, key.replace("shift+", "")
        selects = plain != key
        match plain:
            case "left" if not selects:
                draft.move(draft.selection[0] if draft.selection else draft.before(draft.cursor))
            case "right" if not selects:
                draft.move(draft.selection[1] if draft.selection else draft.after(draft.cursor))
            case "ctrl+left" | "alt+left" | "alt+b":
                draft.move(draft.word_left(), selects=selects)
            case "ctrl+right" | "alt+right" | "alt+f":
                draft.move(draft.word_right(), selects=selects)
            case "home" | "ctrl+a" if not draft.is_empty:
                draft.move(draft.line_start(), selects=selects)
            case "end" if not selects and draft.selection is None and draft.cursor == len(draft.text):
                return False  # already at the end: the key scrolls the transcript instead
            case "end" | "ctrl+e" if not draft.is_empty:
                draft.move(draft.line_end(), selects=selects)
            case "ctrl+home" if not draft.is_empty:
                draft.move(0, selects=selects)
            case "ctrl+end" if not draft.is_empty:
                draft.move(len(draft.text), selects=selects)
            case _:
                return False
        return True

    def _undo_or_yank(self, key: str) -> bool:
        match key:
            case "ctrl+z" | "ctrl+underscore":
                return self.draft.undo()
            case "ctrl+y":
                return self.draft.yank()
            case "ctrl+shift+z" | "alt+underscore":
                return self.draft.redo()
            case _:
                return False

    def _move_by_rows(self, step: int, *, selects: bool) -> bool:
        """Moves to the row above or below and keeps the column; returns `False` at the first and the last row."""
        layout = self._layout_of_draft
        column, row = layout.cell_of(self.draft.cursor)
        if not 0 <= row + step < len(layout.rows):
            return False
        self._column = column if self._column is None else self._column
        self.draft.move(layout.place_at(self._column, row + step), selects=selects)
        return True

    # -- the mouse ---------------------------------------------------------------------------------------------

    def _place_of(self, event: events.MouseEvent) -> int:
        offset = event.get_content_offset_capture(self)
        return self._layout_of_draft.place_at(offset.x - _GUTTER, max(offset.y, 0) + self._top)

    async def on_mouse_down(self, event: events.MouseDown) -> None:
        event.stop()
        if event.button != 1:
            return
        self._pressed_at = self._place_of(event)
        self.draft.move(self._pressed_at, selects=event.shift)
        self.capture_mouse()
        self.changed()

    async def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._pressed_at is None:
            return
        event.stop()
        place = self._place_of(event)
        if place != self.draft.cursor:
            self.draft.move(place, selects=True)
            self.update()

    async def on_mouse_up(self, event: events.MouseUp) -> None:
        if self._pressed_at is not None:
            event.stop()
            self._pressed_at = None
            self.release_mouse()

    async def on_click(self, event: events.Click) -> None:
        event.stop()
        if event.chain == 2:  # select the word
            self.draft.move(self.draft.word_right())
            self.draft.move(self.draft.word_left())
            self.draft.move(self.draft.word_right(), selects=True)
            self.update()
        elif event.chain == 3:
            self.draft.move(self.draft.line_start())
            self.draft.move(self.draft.line_end(), selects=True)
            self.update()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._scroll_rows(event, -1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._scroll_rows(event, 1)

    def _scroll_rows(self, event: events.MouseEvent, step: int) -> None:
        most = self.rows - self.seen_rows
        if most <= 0:
            return  # nothing to scroll here, so the event passes to the parent widgets
        event.stop()
        top = max(0, min(self._top + step, most))
        if top != self._top:
            self._top = top
            self.refresh()

    # -- the window --------------------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        self._drawn = ([], 0, None, None)
        self.update()

    def on_focus(self) -> None:
        self.update()
