"""Single lines of files, masked as they are in their files.

Makes the excerpt of a matching line. A single line of base64 does not show whether it is part of a private key: for
such lines, the whole file is read.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from typing import TYPE_CHECKING

from swink_agent.core.errors import ToolError
from swink_agent.core.secrets.placeholders import MaskedText

from ..files.masked import mask_text, whole_until
from ..files.text import decode_text
from ..workspace.workspace import Workspace, read_whole
from .engines import Hit
from .scan import LONGEST_EXCERPT, excerpt

if TYPE_CHECKING:
    from swink_agent.core.secrets.redaction import Redactor

_LIKE_A_KEY = re.compile(r"\s*[A-Za-z0-9+/=_-]{16,}\\?\s*")
_UNKNOWN = "[a line of base64 in a file that is too large to look through for keys: not shown]"


class MaskedLines:
    """The lines of one search. Without a redactor they are unchanged."""

    def __init__(self, workspace: Workspace, redactor: Redactor | None) -> None:
        self._workspace = workspace
        self._redactor = redactor if redactor is not None and redactor.enabled else None
        self._files: dict[bytes, dict[int, str] | None] = {}

    def excerpt(self, hit: Hit) -> str:
        """The part of the line around its match, masked before it is cut."""
        if self._redactor is None:
            return excerpt(hit.text, hit.column)
        if _LIKE_A_KEY.fullmatch(hit.text):
            if hit.path not in self._files:
                self._files[hit.path] = self._masked_lines(hit.path, self._redactor)
            masked_lines = self._files[hit.path]
            if masked_lines is None:
                return _UNKNOWN
            if hit.line in masked_lines:
                return masked_lines[hit.line]
        masked = mask_text(hit.text, self._redactor)
        return _excerpt(masked, hit.column) if masked.spans else excerpt(hit.text, hit.column)

    def _masked_lines(self, path: bytes, redactor: Redactor) -> dict[int, str] | None:
        """The placeholder for each line number inside a masked value of several lines; `None` if the file is too
        large."""
        try:
            with self._workspace.open_file(os.fsdecode(path)) as file:
                data = read_whole(file)
        except (OSError, ToolError):
            return {}
        decoded = None if data is None else decode_text(data)
        if decoded is None:
            return None if data is None else {}
        masked = redactor.mask(decoded.text)
        lines: dict[int, str] = {}
        number, at = 1, 0
        for span in masked.spans:
            number += masked.text.count("\n", at, span.start)
            at = span.end
            for _ in range(span.original.count("\n")):
                lines[number] = lines[number + 1] = masked.text[span.start : span.end]
                number += 1
        return lines


def _excerpt(masked: MaskedText, column: int) -> str:
    """Like `excerpt`, with the column adjusted for masked values before it, and no placeholder cut."""
    moved = column
    origins: list[int] = []
    shift = 0
    for span in masked.spans:
        origins.append(span.start + shift)
        shift += len(span.original) - (span.end - span.start)
    index = bisect_right(origins, column) - 1
    if index >= 0:
        span = masked.spans[index]
        inside = column - origins[index]
        moved = span.start if inside < len(span.original) else span.end + inside - len(span.original)
    if len(masked.text) <= LONGEST_EXCERPT:
        return masked.text
    shown = excerpt(masked.text, moved)
    cut = shown.removesuffix("…")
    whole = cut[: whole_until(cut, len(cut))]
    return whole + ("…" if shown.endswith("…") or len(whole) < len(cut) else "")
