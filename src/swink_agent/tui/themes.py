"""How roles look: colours and attributes as plain values, for the screen and for `--inline` alike.

Owns the names of the roles and four themes. A role that a theme does not know looks as the part before its last dot
does, so `code.keyword` is at least `code`. No terminal and no Textual here: widgets make rich styles of these values,
`--inline` makes escape sequences of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

__all__ = ["ROLES", "THEMES", "Style", "Theme", "ThemeName", "sgr", "theme_for"]

ThemeName: TypeAlias = Literal["dark", "light", "contrast", "plain"]


class Style(NamedTuple):
    """Colours as `#rrggbb`, or `None` for what lies beneath."""

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


_PLAIN: dict[str, str] = {
    "text": "",
    "dim": "dim",
    "accent": "bold",
    "strong": "bold",
    "emphasis": "italic",
    "strike": "strike",
    "link": "underline",
    "inline": "bold",
    "heading": "bold",
    "heading.1": "bold underline",
    "quote": "italic",
    "quote.bar": "dim",
    "bullet": "bold",
    "rule": "dim",
    "table.head": "bold",
    "table.line": "dim",
    "code": "",
    "code.bar": "dim",
    "code.label": "dim",
    "code.keyword": "bold",
    "code.comment": "dim",
    "code.string": "",
    "user": "bold",
    "user.bar": "bold",
    "user.label": "dim",
    "reply": "bold",
    "plan": "bold",
    "plan.badge": "bold reverse",
    "cursor": "",
    "thinking": "dim italic",
    "thinking.head": "dim",
    "tool": "",
    "tool.name": "bold",
    "tool.summary": "",
    "tool.output": "dim",
    "tool.bar": "dim",
    "tool.selected": "reverse",
    "shell": "bold",
    "running": "bold",
    "done": "",
    "failed": "bold",
    "rejected": "bold",
    "cancelled": "dim",
    "waiting": "dim",
    "added": "bold",
    "added.sign": "bold",
    "added.word": "bold underline",
    "removed": "dim",
    "removed.sign": "dim",
    "removed.word": "dim underline",
    "context": "",
    "hunk": "dim",
    "number": "dim",
    "info": "dim",
    "warning": "bold",
    "error": "bold",
    "welcome": "bold",
    "hit": "underline bold",
    "hit.current": "reverse",
    "selection": "reverse",
    "marker": "reverse",
    "scrollbar": "dim",
    "scrollbar.thumb": "",
    "border": "dim",
    "border.focus": "bold",
    "status": "reverse",
    "status.dim": "reverse",
    "status.plan": "reverse bold",
    "status.execute": "reverse bold",
    "gauge": "",
    "gauge.low": "reverse",
    "gauge.middle": "reverse",
    "gauge.high": "reverse bold",
    "chip": "dim",
    "chip.label": "bold",
    "popup": "",
    "popup.selected": "reverse",
    "popup.detail": "dim",
    "question": "bold",
    "question.choice": "",
    "question.key": "bold",
    "question.off": "dim",
    "placeholder": "dim",
}
ROLES = frozenset(_PLAIN)
"""Every role that this project draws with; others may be made from these with a dot."""

_DARK: dict[str, str] = {
    "text": "#d5d9e2",
    "dim": "#7b8494",
    "accent": "#7aa7f7",
    "strong": "#eef1f7 bold",
    "emphasis": "italic",
    "strike": "strike",
    "link": "#7dbbe8 underline",
    "inline": "#e3b587 on #22262f",
    "heading": "#9fc1fb bold",
    "heading.1": "#b6d0ff bold underline",
    "heading.2": "#a9c8fd bold",
    "quote": "#a8b0bf italic",
    "quote.bar": "#5b6577",
    "bullet": "#7aa7f7",
    "rule": "#3a414e",
    "table.head": "#b6c9ee bold",
    "table.line": "#434b5a",
    "code": "#d0d5df on #1b1f27",
    "code.bar": "#3f4859 on #1b1f27",
    "code.label": "#6f7a8c on #1b1f27",
    "code.keyword": "#c59bf0",
    "code.string": "#a3cf97",
    "code.digits": "#eaa97c",
    "code.number": "#eaa97c",
    "code.comment": "#6d7888 italic",
    "code.name": "#8fc7e8",
    "code.meta": "#e0bd78",
    "code.function": "#85b2fb",
    "user": "#eef1f7 on #20252f",
    "user.bar": "#7aa7f7 on #20252f",
    "user.label": "#8590a3 on #20252f",
    "reply": "#b795ee",
    "plan": "#e6be6a",
    "plan.badge": "#17191f on #e6be6a bold",
    "cursor": "#b795ee",
    "thinking": "#7f8898 italic",
    "thinking.head": "#8d84b0",
    "tool": "#bac1ce",
    "tool.name": "#d8dde7 bold",
    "tool.summary": "#9aa4b5",
    "tool.output": "#8c95a5",
    "tool.bar": "#3d4553",
    "tool.selected": "on #273247",
    "shell": "#e6be6a bold",
    "running": "#7aa7f7",
    "done": "#86c28b",
    "failed": "#ec7f83",
    "rejected": "#e6a35f",
    "cancelled": "#8c95a5",
    "waiting": "#8c95a5",
    "added": "on #16291d",
    "added.sign": "#77c387 on #16291d",
    "added.word": "on #1f4a30",
    "removed": "on #331b20",
    "removed.sign": "#ec7f83 on #331b20",
    "removed.word": "on #642b35",
    "context": "#aab2c0",
    "hunk": "#7a88b8",
    "number": "#566072",
    "info": "#8c95a5",
    "warning": "#e6be6a",
    "error": "#ec7f83",
    "welcome": "#b6d0ff",
    "hit": "#17191f on #b89b4e",
    "hit.current": "#17191f on #f3cd62 bold",
    "selection": "on #33476b",
    "marker": "#17191f on #7aa7f7 bold",
    "scrollbar": "#262b35",
    "scrollbar.thumb": "#4a5364",
    "border": "#3a414e",
    "border.focus": "#7aa7f7",
    "status": "#aab2c0 on #1d2129",
    "status.dim": "#6f7a8c on #1d2129",
    "status.plan": "#17191f on #e6be6a bold",
    "status.execute": "#17191f on #86c28b bold",
    "gauge": "#3a414e on #1d2129",
    "gauge.low": "#86c28b on #1d2129",
    "gauge.middle": "#e6be6a on #1d2129",
    "gauge.high": "#ec7f83 on #1d2129",
    "chip": "#aab2c0",
    "chip.label": "#7aa7f7 bold",
    "popup": "#c3c9d5 on #20252f",
    "popup.selected": "#eef1f7 on #33476b",
    "popup.detail": "#7b8494 on #20252f",
    "question": "#eef1f7 bold",
    "question.key": "#7aa7f7 bold",
    "question.off": "#566072",
    "placeholder": "#5d6778",
}
_LIGHT: dict[str, str] = {
    "text": "#2a2f3a",
    "dim": "#737b8a",
    "accent": "#2c62c9",
    "strong": "#12151c bold",
    "emphasis": "italic",
    "strike": "strike",
    "link": "#1a6fb0 underline",
    "inline": "#93490f on #ece9e2",
    "heading": "#234f9f bold",
    "heading.1": "#1b418a bold underline",
    "quote": "#565e6d italic",
    "quote.bar": "#b3bac7",
    "bullet": "#2c62c9",
    "rule": "#ccd1da",
    "table.head": "#234f9f bold",
    "table.line": "#bcc3cf",
    "code": "#2f3440 on #f0f1f4",
    "code.bar": "#c3c9d4 on #f0f1f4",
    "code.label": "#868e9d on #f0f1f4",
    "code.keyword": "#7b3bb5",
    "code.string": "#2b7a3d",
    "code.digits": "#a8540f",
    "code.number": "#a8540f",
    "code.comment": "#7c8492 italic",
    "code.name": "#1a6c8f",
    "code.meta": "#8a6410",
    "code.function": "#2659b8",
    "user": "#171b24 on #e8edf7",
    "user.bar": "#2c62c9 on #e8edf7",
    "user.label": "#6a7384 on #e8edf7",
    "reply": "#7b3bb5",
    "plan": "#96690a",
    "plan.badge": "#ffffff on #a8770f bold",
    "cursor": "#7b3bb5",
    "thinking": "#757d8c italic",
    "thinking.head": "#7a6f9c",
    "tool": "#3f4653",
    "tool.name": "#20252f bold",
    "tool.summary": "#59616f",
    "tool.output": "#666e7d",
    "tool.bar": "#c6ccd6",
    "tool.selected": "on #dbe5f8",
    "shell": "#96690a bold",
    "running": "#2c62c9",
    "done": "#2b7a3d",
    "failed": "#bd2c35",
    "rejected": "#a8540f",
    "cancelled": "#737b8a",
    "waiting": "#737b8a",
    "added": "on #e2f4e5",
    "added.sign": "#2b7a3d on #e2f4e5",
    "added.word": "on #b4e2bd",
    "removed": "on #fbe5e6",
    "removed.sign": "#bd2c35 on #fbe5e6",
    "removed.word": "on #f6c9cc",
    "context": "#525a68",
    "hunk": "#5c69a0",
    "number": "#9aa2b0",
    "info": "#666e7d",
    "warning": "#96690a",
    "error": "#bd2c35",
    "welcome": "#234f9f",
    "hit": "#171b24 on #f2dc92",
    "hit.current": "#171b24 on #f5b933 bold",
    "selection": "on #bfd3f7",
    "marker": "#ffffff on #2c62c9 bold",
    "scrollbar": "#e3e6ec",
    "scrollbar.thumb": "#b3bac7",
    "border": "#ccd1da",
    "border.focus": "#2c62c9",
    "status": "#474e5c on #e9ebf0",
    "status.dim": "#868e9d on #e9ebf0",
    "status.plan": "#ffffff on #a8770f bold",
    "status.execute": "#ffffff on #2b7a3d bold",
    "gauge": "#c3c9d4 on #e9ebf0",
    "gauge.low": "#2b7a3d on #e9ebf0",
    "gauge.middle": "#a8770f on #e9ebf0",
    "gauge.high": "#bd2c35 on #e9ebf0",
    "chip": "#525a68",
    "chip.label": "#2c62c9 bold",
    "popup": "#2f3440 on #eef0f4",
    "popup.selected": "#12151c on #cfddf7",
    "popup.detail": "#737b8a on #eef0f4",
    "question": "#12151c bold",
    "question.key": "#2c62c9 bold",
    "question.off": "#a3abb8",
    "placeholder": "#8d95a3",
}
_CONTRAST: dict[str, str] = {
    "text": "#ffffff",
    "dim": "#d0d0d0",
    "accent": "#00d7ff bold",
    "strong": "#ffffff bold underline",
    "emphasis": "#ffffff italic",
    "strike": "strike",
    "link": "#5fd7ff underline",
    "inline": "#ffff5f on #303030",
    "heading": "#00d7ff bold",
    "heading.1": "#00d7ff bold underline",
    "quote": "#e4e4e4 italic",
    "quote.bar": "#ffffff",
    "bullet": "#00d7ff bold",
    "rule": "#ffffff",
    "table.head": "#00d7ff bold",
    "table.line": "#bcbcbc",
    "code": "#ffffff on #1c1c1c",
    "code.bar": "#ffffff on #1c1c1c",
    "code.label": "#d0d0d0 on #1c1c1c",
    "code.keyword": "#ff87ff bold",
    "code.string": "#87ff87",
    "code.digits": "#ffd787",
    "code.number": "#ffd787",
    "code.comment": "#c6c6c6 italic",
    "code.name": "#87d7ff",
    "code.meta": "#ffff5f",
    "code.function": "#87d7ff bold",
    "user": "#ffffff on #00005f bold",
    "user.bar": "#ffff00 on #00005f bold",
    "user.label": "#e4e4e4 on #00005f",
    "reply": "#ff87ff bold",
    "plan": "#ffff00 bold",
    "plan.badge": "#000000 on #ffff00 bold",
    "cursor": "#ffffff",
    "thinking": "#d0d0d0 italic",
    "thinking.head": "#d0d0d0 bold",
    "tool": "#ffffff",
    "tool.name": "#ffffff bold",
    "tool.summary": "#e4e4e4",
    "tool.output": "#e4e4e4",
    "tool.bar": "#bcbcbc",
    "tool.selected": "#000000 on #ffff00",
    "shell": "#ffff00 bold",
    "running": "#00d7ff bold",
    "done": "#5fff5f bold",
    "failed": "#ff8787 bold",
    "rejected": "#ffaf5f bold",
    "cancelled": "#d0d0d0",
    "waiting": "#d0d0d0",
    "added": "on #003f00",
    "added.sign": "#87ff87 on #003f00 bold",
    "added.word": "#ffffff on #005f00 bold",
    "removed": "on #5f0000",
    "removed.sign": "#ffafaf on #5f0000 bold",
    "removed.word": "#ffffff on #8a0000 bold",
    "context": "#e4e4e4",
    "hunk": "#87d7ff bold",
    "number": "#d0d0d0",
    "info": "#e4e4e4",
    "warning": "#ffff00 bold",
    "error": "#ff8787 bold",
    "welcome": "#00d7ff bold",
    "hit": "#000000 on #ffff87",
    "hit.current": "#000000 on #ffff00 bold underline",
    "selection": "#000000 on #87d7ff",
    "marker": "#000000 on #00d7ff bold",
    "scrollbar": "#585858",
    "scrollbar.thumb": "#ffffff",
    "border": "#ffffff",
    "border.focus": "#00d7ff bold",
    "status": "#ffffff on #303030",
    "status.dim": "#d0d0d0 on #303030",
    "status.plan": "#000000 on #ffff00 bold",
    "status.execute": "#000000 on #5fff5f bold",
    "gauge": "#8a8a8a on #303030",
    "gauge.low": "#5fff5f on #303030 bold",
    "gauge.middle": "#ffff00 on #303030 bold",
    "gauge.high": "#ff8787 on #303030 bold",
    "chip": "#ffffff",
    "chip.label": "#00d7ff bold",
    "popup": "#ffffff on #303030",
    "popup.selected": "#000000 on #00d7ff bold",
    "popup.detail": "#d0d0d0 on #303030",
    "question": "#ffffff bold",
    "question.key": "#00d7ff bold underline",
    "question.off": "#8a8a8a",
    "placeholder": "#b2b2b2",
}


def _parsed(written: str) -> Style:
    words = written.split()
    background = words.pop(words.index("on") + 1) if "on" in words else None
    foreground = next((word for word in words if word.startswith("#")), None)
    return Style(
        foreground,
        background,
        *[word in words for word in ("bold", "dim", "italic", "underline", "strike", "reverse")],
    )


class Theme:
    """A look. `background` and `foreground` are those of the whole screen; `None` leaves the terminal's own."""

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
        """How a role looks; of several with a `+` between, each is laid over the one before."""
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
        "dark": Theme("dark", _DARK, "#15181e"),
        "light": Theme("light", _LIGHT, "#fafafa", is_dark=False),
        "contrast": Theme("contrast", _CONTRAST, "#000000"),
        "plain": Theme("plain", _PLAIN, None),
    }
)


def theme_for(name: str, environ: Mapping[str, str]) -> Theme:
    """The theme of that name; without colours whatever the name when `NO_COLOR` is set to anything.

    Raises `ValueError` for a name that is none, and says which there are.
    """
    if name not in THEMES:
        raise ValueError(f"there is no theme {name!r}: choose one of {', '.join(THEMES)}")
    return THEMES["plain"] if environ.get("NO_COLOR") else THEMES[name]


def sgr(style: Style) -> str:
    """The escape sequence that begins a style on a terminal with 24-bit colours; nothing for text as it is."""
    codes = [code for code, is_on in zip(("1", "2", "3", "4", "9", "7"), style[2:], strict=True) if is_on]
    for kind, colour in (("38", style.foreground), ("48", style.background)):
        if colour is not None:
            codes.append(f"{kind};2;{';'.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))}")
    return f"\x1b[{';'.join(codes)}m" if codes else ""
