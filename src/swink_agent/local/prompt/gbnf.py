"""Writes grammars in GBNF, the notation of llama.cpp: rules, terminals, ranges of numbers, and the rules of JSON.

`grammar` translates JSON Schemas with it.
"""

from __future__ import annotations

from typing import Any

import msgspec

DIGITS = 15  # a double cannot hold more of them exactly
MOST_REPEATS = 500  # each becomes a rule, and llama.cpp refuses grammars with thousands

_PRIMITIVES = {
    "json-char": r'[^"\\\x00-\x1F\x7F] | "\\" ["\\/bfnrt]',
    "json-string": '"\\"" json-char* "\\""',
    "json-integer": f'"-"? ("0" | [1-9] [0-9]{{0,{DIGITS - 1}}})',
    "json-number": f'"-"? ("0" | [1-9] [0-9]{{0,{DIGITS - 1}}}) ("." [0-9]{{1,{DIGITS}}})?',
    "json-boolean": '"true" | "false"',
    "json-null": '"null"',
    # For a schema without constraints, a few levels are enough, and make sure that every reply ends.
    "json-flat": "json-string | json-number | json-boolean | json-null",
    "json-flat-array": '"[" (json-flat (", " json-flat)*)? "]"',
    "json-flat-object": '"{" (json-string ": " json-flat (", " json-string ": " json-flat)*)? "}"',
    "json-value": "json-flat | json-flat-array | json-flat-object",
    "json-array": '"[" (json-value (", " json-value)*)? "]"',
    "json-object": '"{" (json-string ": " json-value (", " json-string ": " json-value)*)? "}"',
    "json-any": "json-flat | json-array | json-object",
}


class Rules:
    """A grammar to which rules are added. `text()` returns all of it; it starts at `root`."""

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def add(self, name: str, body: str) -> str:
        """Adds a rule and returns its name. Names are lower case letters, digits and dashes."""
        self._rules[name] = body
        return name

    def fresh(self, body: str) -> str:
        """Adds a rule under a new name and returns the name; the same body twice is one rule."""
        if body not in self._names:
            self._names[body] = self.add(f"r{len(self._names)}", body)
        return self._names[body]

    def reserved(self) -> str:
        """Returns the name of a rule whose body is added later, so that it can refer to itself."""
        return self.add(f"later{len(self._rules)}", "")

    def primitive(self, name: str) -> str:
        """Adds one of the JSON rules, with those that it refers to, and returns its name."""
        if name not in self._rules:
            body = self._rules[name] = _PRIMITIVES[name]
            for other in _PRIMITIVES:
                if other in body.replace("(", " ").replace(")", " ").replace("*", " ").split():
                    self.primitive(other)
        return name

    def text(self) -> str:
        return "".join(f"{name} ::= {body}\n" for name, body in self._rules.items())


def literal(text: str) -> str:
    """Returns a terminal that matches exactly this text."""
    return '"' + "".join(_escaped(character) for character in text) + '"'


def json_literal(value: Any) -> str:
    """Returns a terminal that matches exactly this value's JSON."""
    return literal(msgspec.json.encode(value).decode())


def in_class(character: str) -> str:
    """Returns a character as it is written between square brackets."""
    if character in "^-":  # written by their codes: a backslash does not escape them there
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
    """Returns the item from `least` to `most` times, with commas between."""
    if most is not None and most <= 0:
        return '""'
    if least > MOST_REPEATS:
        raise ValueError(f"the schema asks for at least {least} items: the grammar allows {MOST_REPEATS}")
    more = f'(", " {item}){times(max(0, least - 1), None if most is None else most - 1)}'
    return f"({item} {more})" if least else f"({item} {more})?"


def times(least: int, most: int | None) -> str:
    return f"{{{least},{'' if most is None else min(most, MOST_REPEATS)}}}"


def whole_numbers(low: int, high: int) -> list[str]:
    """Returns rule bodies that together match exactly the whole numbers from `low` to `high`. Raises `ValueError`."""
    if low > high:
        raise ValueError(f"the schema asks for a whole number from {low} to {high}, which is impossible")
    if low < 0:
        negative = [f'"-" {body}' for body in whole_numbers(max(1, -high), -low)]
        return negative + (whole_numbers(0, high) if high >= 0 else [])
    bodies: list[str] = []
    while low <= high:
        # The longest range whose numbers share their first digits and take all values of the others.
        free = 0
        while low % 10 ** (free + 1) == 0 and low + 10 ** (free + 1) - 1 <= high and low > 0:
            free += 1
        step = 10**free
        digit = (low // step) % 10
        last = min(9, digit + (high - low + 1) // step - 1)
        head = f'"{str(low // step)[:-1]}" ' if low // step >= 10 else ""
        tail = f" [0-9]{{{free}}}" if free else ""
        bodies.append(f"{head}[{digit}-{last}]{tail}")
        low += (last - digit + 1) * step
    return bodies
