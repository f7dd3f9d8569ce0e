"""A dialog with a few choices.

Owns the keys: Enter takes the marked choice, at first the proposed one; a number or letter takes the choice that it
labels; Escape declines. If no choice has the letter, `y` takes the proposed choice and `n` declines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from swink_agent.rendering.cells import cell_width, cut
from swink_agent.rendering.escaping import safe_display

from .dialog import DIALOG_CSS, QuestionDialog


class _Choices(Widget, can_focus=True):
    ALLOW_SELECT: ClassVar[bool] = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"choices--key", "choices--chosen"}
    DEFAULT_CSS = """
    _Choices {
        height: auto;
        width: 1fr;
        margin: 1 0 0 0;
        & > .choices--key { color: $text-accent; text-style: bold; }
        & > .choices--chosen { background: $accent 25%; text-style: bold; }
    }
    """

    def __init__(self, choices: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self.choices = choices
        self.chosen = 0

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self.choices)

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        base = self.get_component_rich_style("choices--chosen") if y == self.chosen else self.rich_style
        key, label = self.choices[y]
        sign = f" {y + 1} {key[:1].lower()}  "
        text = cut(safe_display(label), max(width - len(sign), 0))
        gap = " " * max(width - len(sign) - cell_width(text), 0)
        key_style = base + self.get_component_rich_style("choices--key").without_color if y == self.chosen else None
        style = key_style or self.get_component_rich_style("choices--key")
        return Strip([Segment(sign, style), Segment(text, base), Segment(gap, base)], width)

    def step(self, by: int) -> None:
        self.chosen = (self.chosen + by) % len(self.choices)
        self.refresh()


class Confirm(QuestionDialog["str | None"]):
    """Returns the key of a choice, or `None` if the user declined. The proposed choice comes first, as 1.

    `choices` are pairs of a key, whose first letter selects it, and a label.
    """

    # Directly above the input, because the question is mostly about the end of the conversation: it stays readable.
    DEFAULT_CSS = f"""
    Confirm {{
        {DIALOG_CSS}
        align: center bottom;
        & > .dialog {{ width: 100%; max-width: 100%; }}
    }}
    """

    def __init__(self, title: str, choices: Sequence[tuple[str, str]], default: str | None = None) -> None:
        first = next((pair for pair in choices if pair[0] == default), choices[0])
        self._choices = _Choices([first, *[pair for pair in choices if pair != first]])
        super().__init__(title, self._choices, len(choices))

    async def on_key(self, event: events.Key) -> None:
        if event.key in ("ctrl+c", "ctrl+q"):
            return
        event.stop()
        event.prevent_default()
        choices = self._choices.choices
        key = event.character.lower() if event.character and event.is_printable else event.key
        lettered = {pair[0][:1].lower(): pair[0] for pair in reversed(choices)}
        if key == "escape":
            self.dismiss(None)
        elif key == "enter":
            self.dismiss(choices[self._choices.chosen][0])
        elif key in ("up", "down", "tab", "shift+tab"):
            self._choices.step(1 if key in ("down", "tab") else -1)
        elif key.isdecimal() and 1 <= int(key) <= len(choices):
            self.dismiss(choices[int(key) - 1][0])
        elif key in lettered:
            self.dismiss(lettered[key])
        elif key == "y":
            self.dismiss(choices[0][0])
        elif key == "n":
            self.dismiss(None)
