"""A change of a file in parts: the hunks of a write or an edit, and the call that makes only some of them.

Turns accepted hunks into arguments of the same tool, with every placeholder unchanged, and checks that they make
exactly the accepted hunks. A change that cannot be expressed in arguments is not offered in parts. Nothing is read or
written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from swink_agent.core.approval import ProposedCall
from swink_agent.core.errors import ToolError
from swink_agent.rendering.texts.diffs import DiffKind, DiffPart, diff_groups
from swink_agent.rendering.turns import changed_texts

from .edit_file import EditFileTool, edits_in
from .edits import apply_edits
from .write_file import WriteFileTool

_MOST_EDITS = 200
_AROUND = 3
_MOST_TOLD = 20
_MARK = "\ufeff"
_NO_TEXT = "\ufffd"


class Hunk(NamedTuple):
    """A part of a change that can be made separately: its lines with their kinds, as in `diff_lines`."""

    lines: tuple[tuple[DiffKind, str], ...]


class ChangeHunks:
    """The hunks of one call. `of` returns nothing for a call that is not offered in parts."""

    def __init__(self, request: ProposedCall, old: str, new: str) -> None:
        self._request = request
        self._old = old
        self._before, self._after = _lines(old), _lines(new)
        self._groups = diff_groups(self._before, self._after, _AROUND)
        self.hunks = tuple([self._hunk(group) for group in self._groups])

    @classmethod
    def of(cls, request: ProposedCall, details: Mapping[str, Any] | None) -> ChangeHunks | None:
        """The hunks of a call that changes a file, from the details that `change_preview` gave for it.

        `None` if parts could not be expressed exactly: another tool, a new file, a file that is not shown exactly (cut,
        with masked text from the model, bytes that are not text, or mixed line ends), or a call that would fail.
        """
        if details is None or details.get("is_new") is not False or details.get("is_exact") is False:
            return None
        texts = changed_texts(details)
        if texts is None:
            return None
        old, new = texts
        if not old or old == new or _NO_TEXT in old or old.startswith(_MARK) or new.startswith(_MARK):
            return None
        if not _makes(request, old, new):
            return None  # the model's text is shown masked: parts of it could not be written back
        return cls(request, old, new)

    def text(self, accepted: Collection[int]) -> str:
        """The file with the accepted hunks, by their numbers from 0, and no others."""
        pieces: list[str] = []
        at = 0
        for number, group in enumerate(self._groups):
            for is_same, i1, i2, j1, j2 in group:
                if is_same:
                    continue
                pieces += self._before[at:i1]
                pieces += self._after[j1:j2] if number in accepted else self._before[i1:i2]
                at = i2
        return "".join([*pieces, *self._before[at:]])

    def arguments(self, accepted: Collection[int]) -> dict[str, Any] | None:
        """The arguments of a call that makes the accepted hunks and nothing else; `None` if that cannot be
        expressed."""
        if len(set(accepted)) == len(self.hunks):
            return dict(self._request.arguments)
        wanted = self.text(accepted)
        given = self._request.arguments
        if self._request.name == WriteFileTool.name:
            return {**given, "content": wanted} if wanted != self._old else None
        parts = [part for number in sorted(set(accepted)) for part in self._groups[number] if not part[0]]
        for around in (0, 1, _AROUND):
            edits = [self._edit(part, around) for part in reversed(parts)]
            arguments = {**given, "edits": edits}
            if 0 < len(edits) <= _MOST_EDITS and _makes(self._request, self._old, wanted, arguments):
                return arguments
        whole = {**given, "edits": [{"old": self._old, "new": wanted}]}
        return whole if _makes(self._request, self._old, wanted, whole) else None

    def told(self, accepted: Collection[int]) -> str:
        """The note for the model when only these hunks are made: its history has the whole call."""
        left = [number for number in range(len(self.hunks)) if number not in accepted]
        lines = [next(part[1] for part in self._groups[number] if not part[0]) + 1 for number in left[:_MOST_TOLD]]
        where = ", ".join([str(line) for line in lines]) + (", …" if len(left) > _MOST_TOLD else "")
        made = f"the user accepted {len(self.hunks) - len(left)} of the {len(self.hunks)} changes in this call"
        return f"{made}; not made: {'the one at line' if len(left) == 1 else 'those at the lines'} {where}"

    def _hunk(self, group: list[DiffPart]) -> Hunk:
        lines: list[tuple[DiffKind, str]] = []
        for is_same, i1, i2, j1, j2 in group:
            if is_same:
                lines.extend([("context", line.removesuffix("\n")) for line in self._before[i1:i2]])
            else:
                lines.extend([("removed", line.removesuffix("\n")) for line in self._before[i1:i2]])
                lines.extend([("added", line.removesuffix("\n")) for line in self._after[j1:j2]])
        (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
        where: tuple[DiffKind, str] = ("hunk", f"@@ -{i1 + 1},{i2 - i1} +{j1 + 1},{j2 - j1} @@")
        return Hunk((where, *lines))

    def _edit(self, part: DiffPart, around: int) -> dict[str, Any]:
        """One replacement at its line. Later lines come first, so that the lines above keep their numbers."""
        _, i1, i2, j1, j2 = part
        start, end = max(i1 - around, 0), min(i2 + around, len(self._before))
        old = "".join(self._before[start:end])
        new = "".join([*self._before[start:i1], *self._after[j1:j2], *self._before[i2:end]])
        return {"old": old, "new": new, "line": start + 1}


def _lines(text: str) -> list[str]:
    """The lines with their line ends: a last line without one differs from one with it."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1].removesuffix("\n")
    return lines if lines[-1] else lines[:-1]


def _makes(request: ProposedCall, old: str, new: str, arguments: Mapping[str, Any] | None = None) -> bool:
    """Whether a call with these arguments, or its own, produces exactly this file."""
    given = dict(request.arguments if arguments is None else arguments)
    if request.name == WriteFileTool.name:
        content = given.get("content")
        return isinstance(content, str) and content.replace("\r\n", "\n") == new
    if request.name != EditFileTool.name:
        return False
    try:
        return apply_edits(old, "\n", edits_in(given), "")[0] == new
    except (ToolError, KeyError, TypeError, AttributeError):
        return False
