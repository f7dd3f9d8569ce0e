"""Values at the edges of what code can be given, in one table: texts and JSON that are odd, deep, long or cut in half.

`tests/contracts/test_edges.py` gives each of them to every codec, parser and renderer.
"""

from __future__ import annotations

import math
from typing import Any

HALF = "\ud83d"  # of an emoji: no encoding has it
SECRET = "sk-ant-api03-" + "Zq7xK29dLmP4" * 3

TEXTS: dict[str, str] = {
    "nothing": "",
    "a space": " ",
    "line ends": "a\r\nb\rc\nd\u2028e\x85f",
    "only line ends": "\n" * 200,
    "NUL": "a\x00b",
    "every control character": "".join(map(chr, [*range(32), *range(127, 160)])),
    "a terminal's orders": "\x1b[2J\x1b]52;c;aGk=\x07\x1b]8;;https://evil.example\x1b\\a",
    "text that turns": "a\u202etxt.exe\u2066b\u2069",
    "what cannot be seen": "a\u200b\u200d\u2060\ufeff\U000e0041b",
    "marks piled up": "a" + "\u0301" * 500,
    "wide and joined": "日本 👩\u200d💻 👍🏽 🇫🇷 ﷽",
    "half of a character": f"a{HALF}b",
    "the other half": "a\ude00b",
    "halves in the wrong order": "\ude00\ud83d",
    "the last of all characters": "\U0010ffff\ufffe\uffff",
    "markup": "<script>alert(1)</script> &amp; <img src=x onerror=alert(1)> ]]> -->",
    "Markdown": "# a\n| b | c |\n|---|---|\n> - [x](javascript:alert(1)) ![y](z) `` ` `` ***\n```\n",
    "an open fence": "~~~~python\nprint(",
    "JSON": '{"role": "user", "content": []}',
    "half of JSON": '{"a": [1, {"b": "',
    "YAML": "---\na: &a [*a]\n...\n!!python/object:os.system x",
    "a number": "1e999",
    "a path": "../../../../etc/passwd\x00.txt",
    "a format": "%s %n {0} {x!r} ${HOME} $(id)",
    "a secret": f"the key is {SECRET}.",
    "brackets": "[" * 2_000,
    "quotes": "> " * 2_000 + "a",
    "emphasis": "*_" * 2_000,
    "a long word": "x" * 100_000,
    "a long line of words": "word " * 20_000,
    "many lines": "line\n" * 20_000,
}
"""By what is odd about them."""


def nested(depth: int, *, in_dicts: bool = False, leaf: Any = "the leaf") -> Any:
    """Data of so many levels."""
    value: Any = leaf
    for _ in range(depth):
        value = {"k": value} if in_dicts else [value]
    return value


class Stranger:
    """An object that nobody knows, with a representation that fails."""

    def __repr__(self) -> str:
        raise RuntimeError("this cannot be shown")


JSON: dict[str, Any] = {
    "null": None,
    "true": True,
    "zero": 0,
    "less than zero": -1,
    "a large number": 10**30,
    "a fraction": 0.1,
    "minus zero": -0.0,
    "a huge fraction": 1.7e308,
    "an empty list": [],
    "an empty object": {},
    "an empty name": {"": ""},
    "odd names": {"__proto__": 1, "constructor": 2, "a.b": 3, "a\nb": 4, "日": 5},
    "as deep as is kept": nested(100),
    "as deep, in objects": nested(100, in_dicts=True),
    "many members": {str(number): number for number in range(5_000)},
    "many items": list(range(20_000)),
    "a list of lists": [[[[]]], [[]], []],
}
"""Values that JSON can hold."""

NOT_JSON: dict[str, Any] = {
    "not a number": math.nan,
    "infinity": math.inf,
    "bytes": b"\xff\x00",
    "a set": {1, 2},
    "a name that is not a text": {1: "one"},
    "half of a character in a name": {HALF: HALF},
    "an object": object(),
    "a deep list": nested(5_000),
    "a deep object": nested(5_000, in_dicts=True),
    "a class": dict,
}
"""Values that it cannot hold, or that no reader would take."""

BYTES: dict[str, bytes] = {
    "nothing": b"",
    "NUL": b"\x00",
    "not UTF-8": b'{"a": "\xff\xfe"}',
    "half of a character": b'{"a": "\\ud83d"}',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "two values": b"{} {}",
    "cut": b'{"a": ',
    "NaN": b'{"a": NaN}',
    "a large number": b'{"a": 1e999, "b": ' + b"9" * 5_000 + b"}",
    "one name twice": b'{"role": "user", "role": "assistant"}',
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "a list": b"[]",
    "a text": b'"text"',
    "null": b"null",
}
"""What a file, a server or a process may send instead of JSON."""
