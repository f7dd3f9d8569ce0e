"""Themes: the colours and attributes of each role, as plain values for the screen and for `--inline`.

Owns the names of the roles and four themes; their colours are in `palettes`. A role that a theme does not list looks
like the part before its last dot: `code.keyword` falls back to `code`. Independent of the terminal and of Textual:
widgets turn these values into rich styles, `--inline` turns them into escape sequences.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from .palettes import CONTRAST, DARK, LIGHT, PLAIN

ThemeName: TypeAlias = Literal["dark", "light", "contrast", "plain"]


class Style(NamedTuple):
    """Colours are `#rrggbb`, or `None` for the colour of the style below."""

    foreground: str | None = None
    background: str | None = None
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    strike: bool = False
    reverse: bool = False

    def over(self, below: Style) -> Style:
        """This style laid over another."""
        return Style(
            self.foreground or below.foreground,
            self.background or below.background,
            *[mine or theirs for mine, theirs in zip(self[2:], below[2:], strict=True)],
        )


ROLES = frozenset(PLAIN)
"""Every role that has an entry in the palettes. Others are made from these with a dot."""


def _parsed(written: str) -> Style:
    words = written.split()
    background = words.pop(words.index("on") + 1) if "on" in words else None
    foreground = next((word for word in words if word.startswith("#")), None)
    return Style(
        foreground, background, *[word in words for word in ("bold", "dim", "italic", "underline", "strike", "reverse")]
    )


class Theme:
    """A theme. `background` and `foreground` apply to the whole screen; `None` leaves the terminal's own colour."""

    __slots__ = ("_known", "_written", "background", "foreground", "is_dark", "name")

    def __init__(
        self, name: ThemeName, written: Mapping[str, str], background: str | None, *, is_dark: bool = True
    ) -> None:
        self.name: ThemeName = name
        self.background = background
        self.foreground = _parsed(written["text"]).foreground
        self.is_dark = is_dark
        self._written = written
        self._known: dict[str, Style] = {}

    def style_of(self, role: str) -> Style:
        """Returns the style of a role. In `base+other`, each role is laid over the one before it."""
        known = self._known.get(role)
        if known is None:
            base, *laid_over = role.split("+")
            known = self._own(base)
            for part in laid_over:
                known = self._own(part).over(known)
            self._known[role] = known
        return known

    def _own(self, role: str) -> Style:
        written = self._written.get(role)
        while written is None and "." in role:
            role = role.rpartition(".")[0]
            written = self._written.get(role)
        return _parsed(written or "")


THEMES: Mapping[str, Theme] = MappingProxyType(
    {
        "dark": Theme("dark", DARK, "#15181e"),
        "light": Theme("light", LIGHT, "#fafafa", is_dark=False),
        "contrast": Theme("contrast", CONTRAST, "#000000"),
        "plain": Theme("plain", PLAIN, None),
    }
)


def theme_for(name: str, environ: Mapping[str, str]) -> Theme:
    """Returns the theme of that name; the one without colours if `NO_COLOR` is set and not empty.

    Raises `ValueError` for an unknown name; the error lists the known ones.
    """
    if name not in THEMES:
        raise ValueError(f"there is no theme {name!r}: choose one of {', '.join(THEMES)}")
    return THEMES["plain"] if environ.get("NO_COLOR") else THEMES[name]


def sgr(style: Style) -> str:
    """Returns the escape sequence that begins a style on a terminal with 24-bit colours; "" for plain text."""
    codes = [code for code, is_on in zip(("1", "2", "3", "4", "9", "7"), style[2:], strict=True) if is_on]
    for kind, colour in (("38", style.foreground), ("48", style.background)):
        if colour is not None:
            codes.append(f"{kind};2;{';'.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))}")
    return f"\x1b[{';'.join(codes)}m" if codes else ""


def is_light(colour: str) -> bool | None:
    """Whether a colour as terminals report it (`rgb:ffff/ffff/ffff`) is light; `None` if it cannot be parsed."""
    found = re.fullmatch(
        r"rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})(?:/[0-9a-fA-F]{1,4})?", colour
    )
    if found is None:
        return None
    red, green, blue = [int(part, 16) / (16 ** len(part) - 1) for part in found.groups()]
    return 0.299 * red + 0.587 * green + 0.114 * blue > 0.5
