"""The keys of vim for a draft: modes, motions, operators, counts, one register, repeating.

Owns the meaning of keys in each mode. `Draft` changes the text and undoes changes. The composer passes the keys to this
module, and handles sending, completion and the history itself.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, TypeAlias

from . import vim_motions as motions
from .draft import Draft, Token
from .vim_motions import Range

Mode: TypeAlias = Literal["INSERT", "NORMAL", "VISUAL", "V-LINE"]
Taken: TypeAlias = Literal["pass", "done", "up", "down"]
"""The effect of a key: `pass` if it is not a key of vim, `done`, or a step to the row above or below, which the
composer must make."""

_MOST_TIMES = 999
_MOST_PUT = 2_000_000
"""Most characters that one command inserts."""
_COUNT = re.compile(r"[1-9]\d*")
_MOTIONS = frozenset("hjklwbeWBE0^$G;,")
_COMMANDS = frozenset("xXpPoOAIiaCDYSsuJ~.vV")
_WITH_CHARACTER = frozenset("fFtT")
_LINEWISE = frozenset("jkG")
_OBJECTS = frozenset("wW\"'`()[]{}<>b")
_KEYS = ("left", "right", "up", "down", "home", "end", "backspace", "delete", "space")
_NAMED: dict[str, str] = dict(zip(_KEYS, "hlkj0$hxl", strict=True))
_ESCAPED = {"alt+b": "b", "alt+d": "d", "alt+f": "f"}
"""Escape and a letter that arrived together. For vim they are two keys."""


class _Command(NamedTuple):
    times: int
    has_count: bool
    operator: str
    what: str
    character: str = ""


class _Register(NamedTuple):
    text: str = ""
    tokens: dict[str, Token] = {}
    is_lines: bool = False


class _Insertion(NamedTuple):
    """The text before and after the place where insert mode began, so that the insertion can be repeated."""

    before: str
    after: str
    keys: str
    times: int


class Vim:
    """The keys of vim for one input line. A new line begins in insert mode."""

    def __init__(self) -> None:
        self.mode: Mode = "INSERT"
        self._keys = ""
        self._register = _Register()
        self._from = 0
        """Where the visual selection began."""
        self._found: tuple[str, str] = ("", "")
        """The last search in a line: its key and its character."""
        self._change: tuple[str, _Register] = ("", _Register())
        """The last change, for `.`: its keys, and the text that was inserted."""
        self._inserting: _Insertion | None = None

    @property
    def takes_escape(self) -> bool:
        """Whether Escape is a key of vim now. Otherwise the screen handles it."""
        return self.mode != "NORMAL" or bool(self._keys)

    def reset(self) -> None:
        """Begins a new draft, in insert mode. The register and the last change stay."""
        self.mode, self._keys, self._inserting = "INSERT", "", None

    def drop(self, draft: Draft) -> None:
        """Forgets where insert mode began, because another text replaces the draft."""
        self._inserting = None
        self._keys = ""
        draft.end_group()

    def press(self, key: str, character: str | None, draft: Draft) -> Taken:
        """Handles a key, given by its name and the character that it types, if any."""
        if key in _ESCAPED:
            self._escape(draft)
            key = character = _ESCAPED[key]
        if key == "escape" and self.takes_escape:
            self._escape(draft)
            return "done"
        if key == "escape" or self.mode == "INSERT":
            return "pass"
        if key == "ctrl+r" and self.mode == "NORMAL":
            self._keys = ""
            draft.redo()
            self.clamp(draft)
            return "done"
        waits = self._keys[-1:] in ("f", "F", "t", "T", "r")
        if character is None or not character.isprintable() or (key in _NAMED and not waits):
            character = _NAMED.get(key)
        if character is None:
            self._keys = ""
            self.leave_visual(draft)  # so that the composer's key does not change the selected text
            return "pass"
        self._keys += character
        return self._take(draft)

    def clamp(self, draft: Draft) -> None:
        """Keeps the cursor on a character in normal mode."""
        if self.mode == "NORMAL":
            at = min(draft.cursor, len(draft.text))
            if at > draft.line_start(at) and at == draft.line_end(at):
                at = draft.before(at)
            draft.move(at)

    def leave_visual(self, draft: Draft) -> None:
        """Returns to normal mode, after something else has changed the text."""
        if self.mode in ("VISUAL", "V-LINE"):
            self.mode = "NORMAL"
            draft.anchor = None
            self.clamp(draft)

    def _escape(self, draft: Draft) -> None:
        self._keys = ""
        if self.mode == "INSERT":
            self._end_insertion(draft)
            self.mode = "NORMAL"
            if draft.cursor > draft.line_start():
                draft.move(draft.before(draft.cursor))
        else:
            self.mode = "NORMAL"
            draft.move(draft.cursor)
        self.clamp(draft)

    # -- commands ----------------------------------------------------------------------------------------------

    def _take(self, draft: Draft) -> Taken:
        command = _read(self._keys, is_visual=self.mode != "NORMAL")
        if command is None:
            return "done"  # incomplete
        keys, self._keys = self._keys, ""
        if isinstance(command, str):
            return "done"  # not a command
        self.clamp(draft)
        if self.mode != "NORMAL":
            self._in_visual(command, draft)
            return "done"
        if command.what in ("j", "k") and not command.operator and not command.has_count:
            return "up" if command.what == "k" else "down"
        self._do(command, keys, draft)
        self.clamp(draft)
        return "done"

    def _do(self, command: _Command, keys: str, draft: Draft) -> None:
        what, count = command.what, command.times
        if command.operator:
            found = self._range(command, draft)
            if found is not None:
                self._operate(command.operator, found, keys, draft)
            return
        match what:
            case "x":
                self._operate("d", Range(draft.cursor, motions.right(draft, draft.cursor, count)), keys, draft)
            case "X":
                self._operate("d", Range(motions.left(draft, draft.cursor, count), draft.cursor), keys, draft)
            case "s":
                self._operate("c", Range(draft.cursor, motions.right(draft, draft.cursor, count)), keys, draft)
            case "D" | "C":
                self._operate(what.lower(), Range(draft.cursor, draft.line_end(_down(draft, count - 1))), keys, draft)
            case "S" | "Y":
                self._operate(
                    "c" if what == "S" else "y", motions.lines_from(draft, draft.cursor, count - 1), keys, draft
                )
            case "r" | "~" | "J":
                self._small(command, keys, draft)
            case "p" | "P":
                self._put(is_after=what == "p", count=count, draft=draft)
                self._change = (keys, _Register())
            case "i" | "a" | "I" | "A" | "o" | "O":
                self._enter(what, keys, count, draft)
            case "u":
                for _ in range(count):
                    draft.undo()
            case ".":
                self._repeat(command, draft)
            case "v" | "V":
                self.mode, self._from = ("VISUAL" if what == "v" else "V-LINE"), draft.cursor
            case _:
                target = self._target(command, draft)
                draft.move(draft.cursor if target is None else target)

    def _operate(self, operator: str, found: Range, keys: str, draft: Draft) -> None:
        start, end, is_lines = found
        text, tokens = draft.copied(start, end)
        if text or is_lines:
            self._register = _Register(text, tokens, is_lines)
        if operator == "y":
            stays = is_lines and draft.line_start() == start
            draft.move(draft.cursor if stays else start)
            return
        draft.begin_group()
        if is_lines and operator == "d":
            if end < len(draft.text):
                end += 1
            else:
                start = max(start - 1, 0)  # the last line is deleted with the line end before it
            draft.cut(start, end)
            draft.move(motions.first_mark(draft, draft.line_start(min(start, len(draft.text)))))
        else:
            draft.cut(start, end)
            draft.move(start)
        if operator == "c":
            self._begin_insertion(keys, 1, draft)
        else:
            draft.end_group()
            self._change = (keys, _Register())

    def _small(self, command: _Command, keys: str, draft: Draft) -> None:
        """Handles `r`, `~` and `J`."""
        start = draft.cursor
        draft.begin_group()
        if command.what == "J":
            for _ in range(max(command.times - 1, 1)):
                end = draft.line_end()
                if end == len(draft.text):
                    break
                after = end + 1
                while draft.text[after : after + 1] in (" ", "\t"):
                    after += 1
                is_apart = draft.text[after : after + 1] not in ("", "\n", ")") and draft.text[end - 1 : end] != " "
                draft.replace(end, after, " " if is_apart and end > draft.line_start(end) else "")
                draft.move(end)
        else:
            end = motions.right(draft, start, command.times)
            places = motions.characters(draft, start, end)
            if command.what == "~" or len(places) == command.times:
                for place in reversed(places):
                    if draft.text[place] in draft.tokens:
                        continue
                    old = draft.text[place : draft.after(place)]
                    draft.replace(place, place + len(old), old.swapcase() if command.what == "~" else command.character)
                draft.move(start if command.what == "r" else motions.right(draft, start, command.times))
        draft.end_group()
        self._change = (keys, _Register())

    def _put(self, *, is_after: bool, count: int, draft: Draft) -> None:
        text, tokens, is_lines = self._register
        if not text and not is_lines:
            return
        count = min(count, max(_MOST_PUT // max(len(text), 1), 1))
        at = draft.cursor
        if is_lines:
            whole = "\n".join([text] * count)
            place = draft.line_end(at) if is_after else draft.line_start(at)
            draft.put(place, f"\n{whole}" if is_after else f"{whole}\n", tokens)
            draft.move(motions.first_mark(draft, place + 1 if is_after else place))
            return
        place = draft.after(at) if is_after and at < draft.line_end(at) else at
        draft.put(place, text * count, tokens)
        draft.move(draft.before(draft.cursor) if "\n" not in text else place)

    # -- insert mode -------------------------------------------------------------------------------------------

    def _enter(self, what: str, keys: str, count: int, draft: Draft) -> None:
        draft.begin_group()
        match what:
            case "a" if draft.cursor < draft.line_end():
                draft.move(draft.after(draft.cursor))
            case "A":
                draft.move(draft.line_end())
            case "I":
                draft.move(motions.first_mark(draft, draft.line_start()))
            case "o":
                end = draft.line_end()
                draft.replace(end, end, "\n")
            case "O":
                start = draft.line_start()
                draft.replace(start, start, "\n")
                draft.move(start)
            case _:
                pass
        self._begin_insertion(keys, count if what in "iaIA" else 1, draft)

    def _begin_insertion(self, keys: str, times: int, draft: Draft) -> None:
        self.mode = "INSERT"
        at = draft.cursor
        self._inserting = _Insertion(draft.text[:at], draft.text[at:], keys, times)

    def _end_insertion(self, draft: Draft) -> None:
        begun, self._inserting = self._inserting, None
        if begun is None:
            draft.end_group()
            return
        is_whole = draft.text.startswith(begun.before) and draft.text.endswith(begun.after)
        end = len(draft.text) - len(begun.after)
        inserted = _Register()
        if is_whole and end >= len(begun.before):
            inserted = _Register(*draft.copied(len(begun.before), end))
            if begun.times > 1 and inserted.text:
                times = min(begun.times, max(_MOST_PUT // len(inserted.text), 1))
                draft.put(draft.cursor, inserted.text * (times - 1), inserted.tokens)
        draft.end_group()
        self._change = (begun.keys, inserted)

    def _repeat(self, command: _Command, draft: Draft) -> None:
        keys, inserted = self._change
        last = _read(keys, is_visual=False) if keys else None
        if not isinstance(last, _Command):
            return
        if command.has_count:
            last = last._replace(times=command.times, has_count=True)
        self._do(last, keys, draft)
        if self.mode == "INSERT":
            draft.put(draft.cursor, inserted.text, inserted.tokens)
            self._end_insertion(draft)
            self.mode = "NORMAL"
            if draft.cursor > draft.line_start():
                draft.move(draft.before(draft.cursor))
        self._change = (keys, inserted)

    # -- visual mode -------------------------------------------------------------------------------------------

    def _in_visual(self, command: _Command, draft: Draft) -> None:
        at, what = draft.cursor, command.what
        start, end = min(self._from, at), max(self._from, at)
        found = Range(start, draft.after(end) if end < len(draft.text) else end)
        if self.mode == "V-LINE":
            found = Range(draft.line_start(start), draft.line_end(end), is_lines=True)
        if what in ("v", "V"):
            wanted: Mode = "VISUAL" if what == "v" else "V-LINE"
            self.mode = "NORMAL" if wanted == self.mode else wanted
        elif what == "o":
            self._from, at = at, self._from
            draft.move(at)
        elif what in ("d", "x", "c", "s", "y", "X", "D"):
            self.mode = "NORMAL"
            draft.move(start)
            operator = {"x": "d", "X": "d", "D": "d", "s": "c"}.get(what, what)
            before = self._change
            self._operate(operator, found, "", draft)
            self._change = before if operator == "y" else ("", _Register())
        elif what in ("p", "P"):
            self.mode = "NORMAL"
            held = self._register
            draft.begin_group()
            taken = draft.cut(found.start, found.end)
            if held.text:
                draft.put(found.start, held.text, held.tokens)
            draft.end_group()
            draft.move(found.start)
            self._register = _Register(*taken, found.is_lines)
        elif what in _MOTIONS or what in _WITH_CHARACTER or what == "gg":
            target = self._target(command, draft)
            draft.move(at if target is None else target)
        if self.mode == "NORMAL":
            draft.anchor = None
            self.clamp(draft)
        elif self.mode != "INSERT":
            self._show_selection(draft)

    def _show_selection(self, draft: Draft) -> None:
        """Selects the text that visual mode covers, except the cursor's cell at its end, which is drawn as cursor."""
        at = draft.cursor
        if self.mode == "V-LINE":
            anchor = draft.line_start(self._from) if at >= self._from else draft.line_end(self._from)
        else:
            anchor = self._from if at >= self._from else draft.after(self._from)
        draft.move(anchor)
        draft.move(at, selects=True)

    # -- ranges and targets ------------------------------------------------------------------------------------

    def _range(self, command: _Command, draft: Draft) -> Range | None:
        """Returns the range that an operator works on; `None` if there is none."""
        what, at, count = command.what, draft.cursor, command.times
        if what == "line":  # on the last line, vim refuses a count above 1
            is_last = draft.line_end(at) == len(draft.text)
            return None if is_last and count > 1 else motions.lines_from(draft, at, count - 1)
        if what[0] in "ia" and len(what) == 2:
            return motions.text_object(draft, at, what)
        if what in _LINEWISE or what == "gg":
            target = self._target(command, draft)
            if target is None or (what in "jk" and draft.line_start(target) == draft.line_start(at)):
                return None
            return Range(draft.line_start(min(at, target)), draft.line_end(max(at, target)), is_lines=True)
        if command.operator == "c" and what in ("w", "W") and not motions.is_blank(draft, at):
            end = at  # as in vim, changing a word leaves the blanks after it
            for number in range(count):
                end = motions.word_end(draft, end - 1 if not number else end, what == "W")
            return Range(at, draft.after(end))
        if what == "$":
            return Range(at, draft.line_end(_down(draft, count - 1)))
        target = self._target(command, draft)
        if target is None:
            return None
        if what in ("e", "E", "f", "t") or (what in ";," and target > at):
            target = draft.after(target)
        if what in ("w", "W"):
            passed = draft.text[at:target]
            trailing = passed[len(passed.rstrip()) :]
            if "\n" in trailing:
                target = at + len(passed.rstrip()) + trailing.index("\n")
        if what == "l":
            target = motions.right(draft, at, count)
        return Range(min(at, target), max(at, target))

    def _target(self, command: _Command, draft: Draft) -> int | None:
        """Returns where a motion leads from the cursor; `None` if it fails."""
        at, what, count = draft.cursor, command.what, command.times
        steps = {"w": motions.word_on, "b": motions.word_back, "e": motions.word_end}
        match what:
            case "h":
                return motions.left(draft, at, count)
            case "l":
                return min(motions.right(draft, at, count), max(draft.line_end(at), 0))
            case "j" | "k":
                return motions.vertical(draft, at, count if what == "j" else -count)
            case "w" | "W" | "b" | "B" | "e" | "E":
                for _ in range(count):
                    at = steps[what.lower()](draft, at, what.isupper())
                return motions.snapped(draft, min(at, len(draft.text)))
            case "0":
                return draft.line_start(at)
            case "^":
                return motions.first_mark(draft, draft.line_start(at))
            case "$":
                return draft.line_end(_down(draft, count - 1))
            case "gg" | "G":
                number = count - 1 if command.has_count or what == "gg" else draft.text.count("\n")
                return motions.first_mark(draft, motions.vertical(draft, 0, number))
            case "f" | "F" | "t" | "T":
                self._found = (what, command.character)
                return motions.found_in_line(draft, at, what, command.character, count)
            case ";" | ",":
                key, character = self._found
                key = key.swapcase() if what == "," else key
                return motions.found_in_line(draft, at, key, character, count, is_again=True) if key else None
            case _:
                return None


# -- reading commands ----------------------------------------------------------------------------------------------


def _read(keys: str, *, is_visual: bool) -> _Command | str | None:
    """Parses keys. Returns the command, `None` if it is incomplete, or a text if the keys are not a command."""
    found = _COUNT.match(keys)
    count, rest = (int(found[0][:4]), keys[found.end() :]) if found else (1, keys)
    has_count, operator = found is not None, ""
    if rest[:1] in ("d", "c", "y") and rest and not is_visual:
        operator, rest = rest[0], rest[1:]
        if second := _COUNT.match(rest):
            count, has_count, rest = count * int(second[0][:4]), True, rest[second.end() :]
    count = min(count, _MOST_TIMES)
    if not rest:
        return None
    head = rest[0]
    if operator and rest == operator:
        return _Command(count, has_count, operator, "line")
    if head in _WITH_CHARACTER or (head == "r" and not operator and not is_visual):
        return _Command(count, has_count, operator, head, rest[1]) if len(rest) > 1 else None
    if head == "g":
        return (_Command(count, has_count, operator, "gg") if rest == "gg" else "?") if len(rest) > 1 else None
    if operator and head in "ia":
        if len(rest) == 1:
            return None
        return _Command(count, has_count, operator, rest) if rest[1] in _OBJECTS else "?"
    if head in _MOTIONS or (not operator and (head in _COMMANDS or (is_visual and head in "dcy"))):
        return _Command(count, has_count, operator, head)
    return "?"


def _down(draft: Draft, lines: int) -> int:
    return draft.cursor if lines <= 0 else draft.line_start(motions.vertical(draft, draft.cursor, lines))
