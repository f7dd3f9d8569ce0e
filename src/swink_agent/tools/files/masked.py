"""Masked values in the file tools: masking a file's text for the model, and putting the values back when it is written.

A model reads and edits the masked text. For writing, its placeholders are replaced by the values that the same file has
at that moment. The `Redactor` decides what is a secret.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from swink_agent.core.errors import ToolError
from swink_agent.core.secrets.placeholders import MASK, MaskedText, PlaceholderError, PutBack

from .text import split_lines

if TYPE_CHECKING:
    from swink_agent.core.secrets.redaction import Redactor

_LONGEST_PLACEHOLDER = 64


def mask_text(text: str, redactor: Redactor | None) -> MaskedText:
    """The text as the model may see it."""
    return MaskedText(text) if redactor is None else redactor.mask(text)


def put_back(masked: MaskedText, view: str, redactor: Redactor | None, path: str) -> PutBack:
    """The changed text as it is written to disk. Raises `ToolError` if one of its placeholders cannot be replaced."""
    if redactor is None:
        return PutBack(view, 0, 0, ())
    try:
        return redactor.put_back(masked, view, path)
    except PlaceholderError as error:
        raise ToolError(f"{path} was not written, as {error}.") from error


def masked_note(kept: int, removed: int) -> str:
    """A note for people on how many masked values of a file stay, and how many are removed."""
    stay = f"{kept} masked value{'s stay as they are' if kept != 1 else ' stays as it is'}" if kept else ""
    go = f"{removed} masked value{'s are' if removed != 1 else ' is'} removed" if removed else ""
    return "; ".join(part for part in (stay, go) if part)


def whole_until(text: str, end: int) -> int:
    """The last position at or before `end` that is not inside a placeholder."""
    at = text.rfind(MASK, max(0, end - _LONGEST_PLACEHOLDER), end + len(MASK))
    return at if 0 <= at < end and "]" not in text[at:end] else end


class LineView(NamedTuple):
    """A masked text by lines, and the file's line number at which each begins: a masked value may take many lines."""

    lines: list[str]
    starts: list[int] | None
    total: int

    def index_of(self, number: int) -> int:
        """The index of the line of the text that shows the file's line `number`."""
        return number - 1 if self.starts is None else bisect_right(self.starts, number) - 1

    def number_of(self, index: int) -> int:
        """The number of the file's first line that this line shows. The index after the last line gives the number
        after the file's last line."""
        if self.starts is None:
            return index + 1
        return self.starts[index] if index < len(self.starts) else self.total + 1


def line_view(text: str, masked: MaskedText) -> LineView:
    """The lines of `text`, which is the masked text as shown."""
    lines = split_lines(text)
    total = len(lines)
    folded = [(span.start, span.original.count("\n")) for span in masked.spans if "\n" in span.original]
    if not folded:
        return LineView(lines, None, total)
    starts: list[int] = []
    number = 1
    at, pending = 0, iter([*folded, (len(masked.text) + 1, 0)])
    place, extra = next(pending)
    for line in masked.text.split("\n"):
        starts.append(number)
        at += len(line) + 1
        while place < at:
            number += extra
            place, extra = next(pending)
        number += 1
    return LineView(lines, starts, number - 1)
