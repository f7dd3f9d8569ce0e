"""How a grammar (GBNF) is written: its rules, the terminals in them, and the rules of JSON itself.

Owns the notation of llama.cpp. What a schema makes of it is in `grammar`.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["DIGITS", "MOST_REPEATS", "Rules", "in_class", "json_literal", "literal", "repeated", "times"]

DIGITS = 15  # more would leave what a double holds exactly
MOST_REPEATS = 500  # each is a rule of its own, and the parser of grammars refuses thousands

_PRIMITIVES = {
    "json-char": r'[^"\\\x00-\x1F\x7F] | "\\" ["\\/bfnrt]',
    "json-string": '"\\"" json-char* "\\""',
    "json-integer": f'"-"? ("0" | [1-9] [0-9]{{0,{DIGITS - 1}}})',
    "json-number": f'"-"? ("0" | [1-9] [0-9]{{0,{DIGITS - 1}}}) ("." [0-9]{{1,{DIGITS}}})?',
    "json-boolean": '"true" | "false"',
    "json-null": '"null"',
    # Two levels of any value are plenty for a schema that says nothing, and every reply ends.
    "json-flat": "json-string | json-number | json-boolean | json-null",
    "json-flat-array": '"[" (json-flat (", " json-flat)*)? "]"',
    "json-flat-object": '"{" (json-string ": " json-flat (", " json-string ": " json-flat)*)? "}"',
    "json-value": "json-flat | json-flat-array | json-flat-object",
    "json-array": '"[" (json-value (", " json-value)*)? "]"',
    "json-object": '"{" (json-string ": " json-value (", " json-string ": " json-value)*)? "}"',
    "json-any": "json-flat | json-array | json-object",
}


class Rules:
    """Rules that grow as they are needed. `text()` is the whole, with `root` as its start."""

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def add(self, name: str, body: str) -> str:
        """A rule of the caller's own; returns its name. Names are lower case letters, digits and dashes."""
        self._rules[name] = body
        return name

    def fresh(self, body: str) -> str:
        """A rule under a name of its own; the same body twice is one rule."""
        if body not in self._names:
            self._names[body] = self.add(f"r{len(self._names)}", body)
        return self._names[body]

    def reserved(self) -> str:
        """The name of a rule whose body comes later, so that it can stand in it."""
        return self.add(f"later{len(self._rules)}", "")

    def primitive(self, name: str) -> str:
        """One of the JSON rules, with those that it is made of."""
        if name not in self._rules:
            body = self._rules[name] = _PRIMITIVES[name]
            for other in _PRIMITIVES:
                if other in body.replace("(", " ").replace(")", " ").replace("*", " ").split():
                    self.primitive(other)
        return name

    def text(self) -> str:
        return "".join(f"{name} ::= {body}\n" for name, body in self._rules.items())


def literal(text: str) -> str:
    """A terminal that matches exactly this text."""
    return '"' + "".join(_escaped(character) for character in text) + '"'


def json_literal(value: Any) -> str:
    """A terminal that matches exactly this value's JSON."""
    return literal(msgspec.json.encode(value).decode())


def in_class(character: str) -> str:
    """A character as it stands between square brackets."""
    if character in "^-":  # escaped by their codes: a backslash before them means nothing there
        return f"\\x{ord(character):02X}"
    return f"\\{character}" if character in '\\]["' else _escaped(character)


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isascii() and character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02X}" if code < 0x80 else f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"


def repeated(item: str, least: int, most: int | None) -> str:
    """The item so many times, with commas between."""
    if most is not None and most <= 0:
        return '""'
    if least > MOST_REPEATS:
        raise ValueError(f"the schema asks for at least {least} items: more than can be written")
    more = f'(", " {item}){times(max(0, least - 1), None if most is None else most - 1)}'
    return f"({item} {more})" if least else f"({item} {more})?"


def times(least: int, most: int | None) -> str:
    return f"{{{least},{'' if most is None else min(most, MOST_REPEATS)}}}"
