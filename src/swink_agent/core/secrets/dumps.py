"""Reads dumps of bytes as xxd, hexdump and od print them. `forms` searches the bytes for secrets."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

_CHARACTER = r"(?:   [^\n]|  \\[^\n]|  (?:nl|sp|ht|cr)| [0-7]{3})"
"""A character of `od -c` or `od -a`, four cells wide: itself, escaped, named, or in octal."""
_NAMED = {"nl": b"\n", "sp": b" ", "ht": b"\t", "cr": b"\r"}


class _Patterns:
    """Compiled on first use."""

    def __init__(self) -> None:
        # An address, then bytes or words (xxd adds a text after them), or characters, which may have no address and
        # may follow a text without a newline.
        self.line = re.compile(
            r"(?m)^[ \t]*[0-9a-fA-F]{4,16}(?:: ((?:[0-9a-fA-F]{2,8} ){1,32})[^\n]*"
            r"| {1,4}((?:[0-9a-fA-F]{2,8} {1,2}){0,31}[0-9a-fA-F]{2,8})[ \t]*(?:[|>][^\n]*)?)$"
            rf"|(?:^[ \t]*[0-9a-fA-F]{{4,16}}|^|0{{6,8}})({_CHARACTER}{{1,32}})[ \t]*$"
        )
        self.begun = re.compile(r"[ \t]*(?:[0-9a-fA-F]{0,16}:?|[0-9a-fA-F]{4,16}:? .*)\Z")
        self.characters_begun = re.compile(
            rf"(?:^|0{{6,8}}){_CHARACTER}{{0,32}}(?: {{1,3}}| {{1,2}}\\| [0-7]{{1,2}})?\Z|0{{1,8}}\Z"
        )
        self.character = re.compile(r"(?:   (.)|  (nl|sp|ht|cr)|  \\(.)| ([0-7]{3}))")
        self.several_characters = re.compile(r"(?:   \S){4}")


dump_patterns = lru_cache(maxsize=1)(_Patterns)


def may_dump(text: str) -> bool:
    """Checks quickly whether a text may contain a dump: addresses begin with zeros, except in very large files, or
    characters are far apart."""
    if "0000" in text or "\n00" in text or text.startswith("00"):
        return True
    return "   " in text and dump_patterns().several_characters.search(text) is not None


def readings(lines: list[re.Match[str]]) -> list[Callable[[re.Match[str]], bytes]]:
    """Returns the possible ways to read the lines of a dump, which do not state their format."""
    sizes = {len((line.group(1) or line.group(2)).split(None, 1)[0]) if not line.group(3) else 0 for line in lines}
    found: list[Callable[[re.Match[str]], bytes]] = []
    if sizes & {2, 4, 6, 8}:
        found.append(_as_bytes)
    if sizes & {4, 8}:
        found.append(_as_words)
    if sizes & {0, 3, 6}:
        found.append(_as_octal)
    return found


def _as_bytes(line: re.Match[str]) -> bytes:
    digits = (line.group(1) or line.group(2) or "").replace(" ", "")
    return b"" if len(digits) % 2 else bytes.fromhex(digits)


def _as_words(line: re.Match[str]) -> bytes:
    """Reads words of two or four bytes, the lowest byte first."""
    groups = (line.group(1) or line.group(2) or "").split()
    return b"".join([bytes.fromhex(group)[::-1] for group in groups if len(group) % 2 == 0])


def _as_octal(line: re.Match[str]) -> bytes:
    """Reads bytes or words in octal, or characters, some of them in octal."""
    if line.group(3):
        parts = dump_patterns().character.findall(line.group(3))
        return b"".join([_character(*part) for part in parts])
    return b"".join(map(_octal, (line.group(1) or line.group(2)).split()))


def _character(plain: str, named: str, escaped: str, code: str) -> bytes:
    return _NAMED[named] if named else (plain or escaped).encode() if plain or escaped else _octal(code)


def _octal(digits: str) -> bytes:
    if set(digits) - set("01234567") or len(digits) not in (3, 6):
        return b""
    return (int(digits, 8) & (0xFF if len(digits) == 3 else 0xFFFF)).to_bytes(len(digits) // 3, "little")
