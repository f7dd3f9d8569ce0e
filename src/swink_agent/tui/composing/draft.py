"""The text being written: cursor, selection, and undo.

Owns the rules of editing. Every step moves over a whole character as people see it. A folded paste or a picture is one
such character, a token: a code point of a private range that cannot be typed, with its content in `Draft.tokens`.
`layout` places the text in a window.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

from swink_agent.rendering.cells import clusters

_FIRST_TOKEN = 0xF_F000
_LAST_TOKEN = 0xF_FFFD
_MOST_STEPS = 400
_MOST_KEPT = 4_000_000
"""Most characters that all undo steps may hold together."""
_RESERVED = re.compile(f"[{chr(_FIRST_TOKEN)}-{chr(_LAST_TOKEN)}]")
_APART = re.compile(f"([\t{chr(_FIRST_TOKEN)}-{chr(_LAST_TOKEN)}])")
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_WORD = re.compile(r"\w+")


class Token(NamedTuple):
    """A piece of the text that is shown as a label: a folded paste, or a picture, whose content is its path."""

    kind: Literal["paste", "image"]
    label: str
    content: str


class Sent(NamedTuple):
    """A draft as it is sent: the full text, and the paths of its pictures."""

    text: str
    images: tuple[str, ...]


class _State(NamedTuple):
    text: str
    cursor: int
    tokens: dict[str, Token]


def plain_text(text: str) -> str:
    """Returns text in the form of a draft: lines end in `\\n`, and tabs are the only other control characters."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _RESERVED.sub("\ufffd", _CONTROLS.sub("", text))


def whole_characters(line: str) -> Iterator[tuple[str, int]]:
    """Yields the characters of a line as people see them, with their widths in cells; 0 for a tab or a token."""
    for part in _APART.split(line):
        if _APART.fullmatch(part):
            yield part, 0
        else:
            yield from clusters(part)


class Draft:
    """A text that is edited. `cursor` and `anchor` are positions in `text`; with an anchor, a part is selected."""

    def __init__(self, text: str = "") -> None:
        self.text = plain_text(text)
        self.cursor = len(self.text)
        self.anchor: int | None = None
        self.tokens: dict[str, Token] = {}
        """The content of each token in the text."""
        self.is_start_typed = False
        """Whether the first character, blank lines aside, was typed here: not pasted, and not brought back."""
        self._killed = ""
        self._killed_tokens: dict[str, Token] = {}
        self._killed_at: tuple[int, str] | None = None
        """The cursor and the text after the last deletion. If both are unchanged, the next deletion is joined to it."""
        self._undone: list[_State] = []
        self._done: list[_State] = []
        self._is_typing = False
        self._is_grouped = False
        """Whether changes are joined to one undo step."""
        self._has_step = False
        """Whether the group has its undo step."""
        self._count = 0

    # -- content -----------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether there is no text, not even spaces."""
        return not self.text

    @property
    def selection(self) -> tuple[int, int] | None:
        """The start and the end of the selected text; `None` if nothing is selected."""
        if self.anchor is None or self.anchor == self.cursor:
            return None
        return min(self.anchor, self.cursor), max(self.anchor, self.cursor)

    @property
    def selected(self) -> str:
        """The selected text, with the whole text of folded pastes."""
        span = self.selection
        return "" if span is None else self._expanded(self.text[span[0] : span[1]])

    def sent(self) -> Sent:
        """Returns the draft as it is sent: pastes in full, each picture by its label, and the pictures' paths."""
        found = [self.tokens[part] for part in self.text if part in self.tokens]
        return Sent(self._expanded(self.text), tuple(token.content for token in found if token.kind == "image"))

    @property
    def start(self) -> int:
        """The place where the text begins, after empty lines."""
        return len(self.text) - len(self.text.lstrip("\n"))

    @property
    def begins_with_token(self) -> bool:
        """Whether the text begins with a token, whose content is not visible."""
        return self.text[self.start : self.start + 1] in self.tokens

    def _expanded(self, text: str) -> str:
        for character, token in self.tokens.items():
            text = text.replace(character, token.content if token.kind == "paste" else token.label)
        return text

    # -- changes -----------------------------------------------------------------------------------------------

    def insert(self, text: str, *, is_typed: bool = False) -> None:
        """Replaces the selection, or inserts at the cursor. Consecutive typing is undone in one step."""
        self._replace(*(self.selection or (self.cursor, self.cursor)), plain_text(text), is_typed=is_typed)

    def replace(self, start: int, end: int, text: str) -> None:
        self._replace(start, end, plain_text(text))

    def insert_token(self, kind: Literal["paste", "image"], label: str, content: str) -> None:
        """Puts a token at the cursor; `#` in its label becomes its number."""
        character = self._new_character()
        token = Token(kind, label.replace("#", f"#{self._count}"), content)
        span = self.selection or (self.cursor, self.cursor)
        self._replace(*span, character, tokens={**self.tokens, character: token})

    def open_token(self) -> Token | None:
        """Replaces a folded paste by its full text: the one at the cursor, else the nearest before it, else the first.

        If that token is a picture, it stays. Returns the token; `None` if the draft has none.
        """
        places = [place for place, part in enumerate(self.text) if part in self.tokens]
        if not places:
            return None
        before = [place for place in places if place <= self.cursor]
        place = before[-1] if before else places[0]
        token = self.tokens[self.text[place]]
        if token.kind == "paste":
            self._replace(place, place + 1, token.content)
        return token

    def set(self, text: str) -> None:
        """Replaces the whole text; the cursor goes to its end."""
        self._replace(0, len(self.text), plain_text(text))

    def put_before(self, text: str, pictures: Iterable[tuple[str, str]] = ()) -> None:
        """Inserts a message that was taken back at the beginning of the draft. The cursor goes to the end of the draft.

        `pictures` are labels and paths, in order. Each is attached again at its label in the text, or if the text lacks
        the label, before the rest of the text.
        """
        is_alone = not self.text.strip()
        self.anchor, self.cursor = None, 0
        rest = text if is_alone else f"{text}\n\n"
        for label, path in pictures:
            head, _, tail = label.partition("#")
            if found := re.search(rf"{re.escape(head)}#\d+{re.escape(tail)}", rest):
                self.insert(rest[: found.start()])
                rest = rest[found.end() :]
            self.insert_token("image", label, path)
        self.insert(rest)
        self.cursor = len(self.text)

    def clear(self) -> None:
        """Empties the draft and its undo steps; keeps the text for `yank`."""
        killed, tokens, count = self._killed, self._killed_tokens, self._count
        self.__init__()
        self._killed, self._killed_tokens = killed, tokens
        if tokens:
            self._count = count  # do not reuse the numbers of tokens that `yank` can bring back

    def delete_left(self) -> None:
        """Deletes the selection, or the character before the cursor."""
        self._delete(self.before(self.cursor))

    def delete_right(self) -> None:
        """Deletes the selection, or the character after the cursor."""
        self._delete(self.after(self.cursor))

    def delete_word_left(self) -> None:
        """Deletes the selection, or back to the beginning of the word; as in shells, only spaces separate words."""
        at = self.cursor
        while at > 0 and self.text[at - 1].isspace():
            at -= 1
        if at > 0 and self.text[at - 1] in self.tokens:
            at -= 1
        else:
            while at > 0 and not self.text[at - 1].isspace() and self.text[at - 1] not in self.tokens:
                at -= 1
        self._delete(at, is_kept=True)

    def delete_word_right(self) -> None:
        """Deletes the selection, or up to the end of the word."""
        self._delete(self.word_right(), is_kept=True)

    def delete_line_start(self) -> None:
        """Deletes the selection, or back to the line's beginning; at the beginning, the line end before it."""
        start = self.line_start()
        self._delete(start if start < self.cursor else max(self.cursor - 1, 0), is_kept=True)

    def delete_line_end(self) -> None:
        """Deletes the selection, or up to the line's end; at the end, the line end."""
        end = self.line_end()
        self._delete(end if end > self.cursor else min(self.cursor + 1, len(self.text)), is_kept=True)

    def yank(self) -> bool:
        """Inserts the text last deleted by word or line, replacing the selection; returns whether there was any.

        Its pastes and pictures come back as they were.
        """
        if not self._killed:
            return False
        span = self.selection or (self.cursor, self.cursor)
        self._replace(*span, self._killed, tokens={**self.tokens, **self._killed_tokens})
        return True

    def cut(self, start: int, end: int) -> tuple[str, dict[str, Token]]:
        """Deletes a part, and returns it with its tokens for `put`. `yank` can insert it like a deleted line."""
        taken = self.copied(start, end)
        if start < end:
            self._keep(start, end)
            self._replace(start, end, "")
        return taken

    def copied(self, start: int, end: int) -> tuple[str, dict[str, Token]]:
        """Returns a part of the text, with its tokens for `put`."""
        text = self.text[start:end]
        return text, {part: self.tokens[part] for part in text if part in self.tokens}

    def put(self, place: int, text: str, tokens: Mapping[str, Token]) -> None:
        """Inserts a part that was cut or copied, also from another draft. Its tokens get new characters."""
        known = dict(self.tokens)
        parts: list[str] = []
        for part in text:
            if (token := tokens.get(part)) is not None:
                part = self._new_character()
                known[part] = token
            parts.append(part if part in known or not _RESERVED.match(part) else "\ufffd")
        self._replace(place, place, "".join(parts), tokens=known)

    def _new_character(self) -> str:
        self._count += 1
        return chr(_FIRST_TOKEN + (self._count - 1) % (_LAST_TOKEN - _FIRST_TOKEN))

    def begin_group(self) -> None:
        """Joins all changes to one undo step, until `end_group`."""
        self._is_grouped, self._has_step, self._is_typing = True, False, False

    def end_group(self) -> None:
        self._is_grouped = self._has_step = self._is_typing = False

    def _delete(self, other: int, *, is_kept: bool = False) -> None:
        start, end = self.selection or (min(self.cursor, other), max(self.cursor, other))
        if start < end:
            if is_kept:
                self._keep(start, end)
            self._replace(start, end, "")

    def _keep(self, start: int, end: int) -> None:
        """Keeps deleted text for `yank`. Consecutive deletions are kept as one piece."""
        taken = self.text[start:end]
        goes_on = bool(self._done) and self._killed_at == (self.cursor, self.text)
        self._killed = (taken + self._killed if end == self.cursor else self._killed + taken) if goes_on else taken
        self._killed_tokens = {part: self.tokens[part] for part in self._killed if part in self.tokens}
        self._killed_at = (start, self.text[:start] + self.text[end:])

    def _replace(
        self, start: int, end: int, text: str, *, is_typed: bool = False, tokens: dict[str, Token] | None = None
    ) -> None:
        if is_typed and self._is_typing and start == end == self.cursor and not text.isspace():
            self._undone.clear()
        else:
            self._remember()
        self._is_typing = is_typed
        if start <= self.start:
            self.is_start_typed = is_typed
        self.text = f"{self.text[:start]}{text}{self.text[end:]}"
        self.cursor, self.anchor = start + len(text), None
        if tokens is not None:
            self.tokens = tokens

    # -- undo --------------------------------------------------------------------------------------------------

    def undo(self) -> bool:
        return self._step(self._done, self._undone)

    def redo(self) -> bool:
        """Makes the last undone change again, if nothing was changed since; returns whether it did."""
        return self._step(self._undone, self._done)

    def _step(self, source: list[_State], target: list[_State]) -> bool:
        if not source:
            return False
        target.append(_State(self.text, self.cursor, self.tokens))
        self.text, self.cursor, self.tokens = source.pop()
        self.anchor, self._is_typing, self.is_start_typed, self._has_step = None, False, False, False
        return True

    def _remember(self) -> None:
        self._undone.clear()
        if self._is_grouped and self._has_step:
            return
        self._has_step = True
        self._done.append(_State(self.text, self.cursor, self.tokens))
        held = 0
        for number, state in enumerate(reversed(self._done)):
            held += len(state.text)
            if number >= _MOST_STEPS or held > _MOST_KEPT:
                del self._done[: len(self._done) - max(number, 1)]
                break

    # -- places ------------------------------------------------------------------------------------------------

    def move(self, place: int, *, selects: bool = False) -> None:
        """Moves the cursor; with `selects` the selection grows or shrinks to it."""
        if not selects:
            self.anchor = None
        elif self.anchor is None:
            self.anchor = self.cursor
        self.cursor = max(0, min(place, len(self.text)))
        self._is_typing = False

    def before(self, place: int) -> int:
        """Returns the place one whole character back."""
        if place <= 0:
            return 0
        start = self.line_start(place)
        if start == place:
            return place - 1
        return max(edge for edge in _edges(self.text[start : self.line_end(place)]) if start + edge < place) + start

    def after(self, place: int) -> int:
        """Returns the place one whole character forward."""
        if place >= len(self.text):
            return len(self.text)
        end = self.line_end(place)
        if end == place:
            return place + 1
        start = self.line_start(place)
        return min(edge for edge in _edges(self.text[start:end]) if start + edge > place) + start

    def word_left(self) -> int:
        """Returns the beginning of the word before the cursor; a token is a word."""
        at = self.cursor
        while at > 0 and not self._is_word(at - 1):
            at -= 1
        if at > 0 and self.text[at - 1] in self.tokens:
            return at - 1
        while at > 0 and self._is_word(at - 1) and self.text[at - 1] not in self.tokens:
            at -= 1
        return at

    def word_right(self) -> int:
        """Returns the end of the word after the cursor; a token is a word."""
        at, end = self.cursor, len(self.text)
        while at < end and not self._is_word(at):
            at += 1
        if at < end and self.text[at] in self.tokens:
            return at + 1
        while at < end and self._is_word(at) and self.text[at] not in self.tokens:
            at += 1
        return self.after(at - 1) if at > self.cursor else at

    def _is_word(self, place: int) -> bool:
        character = self.text[place]
        return character in self.tokens or _WORD.match(character) is not None

    def line_start(self, place: int | None = None) -> int:
        """Returns the start of the line of a place, by default the cursor."""
        return self.text.rfind("\n", 0, self.cursor if place is None else place) + 1

    def line_end(self, place: int | None = None) -> int:
        """Returns the end of the line of a place, by default the cursor."""
        found = self.text.find("\n", self.cursor if place is None else place)
        return len(self.text) if found < 0 else found


@lru_cache(8)
def _cluster_edges(line: str) -> tuple[int, ...]:
    edges, at = [0], 0
    for piece, _ in whole_characters(line):
        at += len(piece)
        edges.append(at)
    return tuple(edges)


def _edges(line: str) -> Iterable[int]:
    """Returns the places between whole characters of a line, including its start and end."""
    return range(len(line) + 1) if line.isascii() else _cluster_edges(line)
