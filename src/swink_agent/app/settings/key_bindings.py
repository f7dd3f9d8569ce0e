"""The table `[keys]` of the user's settings: which key does what in the terminal UI.

A key that types a character cannot be bound, and the keys that answer questions and stop a run cannot be changed: no
binding answers a question. The terminal UI performs the actions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

KEYS = "keys."
"""The beginning of the names of these settings."""
Place: TypeAlias = Literal["anywhere", "writing"]


class UiAction(NamedTuple):
    """An action of a key. With the place `writing`, it works only while the input line has the focus."""

    name: str
    keys: tuple[str, ...]
    help: str
    place: Place = "writing"


ACTIONS = (
    UiAction("send", ("enter",), "send; during a run, steer it"),
    UiAction("queue", ("tab",), "during a run: queue a follow-up"),
    UiAction("new_line", ("shift+enter", "alt+enter", "ctrl+j", "ctrl+enter", "alt+shift+enter"), "begin a new line"),
    UiAction("earlier", ("up", "ctrl+p"), "the row above, then earlier prompts"),
    UiAction("later", ("down", "ctrl+n"), "the row below, then later prompts"),
    UiAction("history", ("ctrl+r",), "search earlier prompts"),
    UiAction("open_paste", ("ctrl+o",), "open a folded paste"),
    UiAction("editor", ("ctrl+g",), "edit the draft in your own editor"),
    UiAction("clipboard", ("ctrl+v",), "attach the picture on the clipboard, or insert its text"),
    UiAction("delete_left", ("backspace", "ctrl+h", "shift+backspace"), "delete the character before the cursor"),
    UiAction("delete_right", ("delete", "shift+delete", "ctrl+d"), "delete the character after the cursor"),
    UiAction("delete_word_left", ("ctrl+w", "alt+backspace", "ctrl+backspace"), "delete the word before the cursor"),
    UiAction("delete_word_right", ("alt+d", "ctrl+delete", "alt+delete"), "delete the word after the cursor"),
    UiAction("delete_line_start", ("ctrl+u",), "delete to the beginning of the line"),
    UiAction("delete_line_end", ("ctrl+k",), "delete to the end of the line"),
    UiAction("bring_back", ("ctrl+y",), "insert the last deleted words or line"),
    UiAction("undo", ("ctrl+underscore",), "undo the last change"),
    UiAction("redo", ("ctrl+shift+z", "alt+underscore"), "redo it"),
    UiAction("word_left", ("ctrl+left", "alt+left", "alt+b"), "go a word back"),
    UiAction("word_right", ("ctrl+right", "alt+right", "alt+f"), "go a word forward"),
    UiAction("line_start", ("home", "ctrl+a"), "go to the beginning of the line"),
    UiAction("line_end", ("end", "ctrl+e"), "go to the end of the line"),
    UiAction("mode", ("shift+tab",), "ask about every call, auto, plan, and again", "anywhere"),
    UiAction("search", ("ctrl+f",), "search the conversation", "anywhere"),
    UiAction("todo", ("ctrl+t",), "fold and open the list of things to do", "anywhere"),
    UiAction("open_block", ("f2",), "open and fold a tool's block", "anywhere"),
    UiAction("block_before", ("shift+left",), "select the block before", "anywhere"),
    UiAction("block_after", ("shift+right",), "select the next block", "anywhere"),
    UiAction("page_up", ("pageup",), "scroll up", "anywhere"),
    UiAction("page_down", ("pagedown",), "scroll down", "anywhere"),
    UiAction("top", ("ctrl+home",), "scroll to the beginning", "anywhere"),
    UiAction("bottom", ("ctrl+end",), "follow the conversation again", "anywhere"),
    UiAction("recent_1", ("f3",), "continue the last session, on the first screen", "anywhere"),
    UiAction("recent_2", ("f4",), "continue the one before", "anywhere"),
    UiAction("recent_3", ("f5",), "continue the one before that", "anywhere"),
    UiAction("mouse", ("f6",), "give the mouse to the terminal, and back", "anywhere"),
    UiAction("help", ("f1",), "keys and commands", "anywhere"),
    UiAction("suspend", ("ctrl+z",), "go to the shell; fg comes back", "anywhere"),
    UiAction("leave", ("ctrl+q",), "leave", "anywhere"),
)
_BY_NAME = {action.name: action for action in ACTIONS}

_NAMED = (
    *("enter", "tab", "space", "backspace", "delete", "insert", "home", "end", "pageup", "pagedown"),
    *("up", "down", "left", "right", "underscore", "backslash", "slash", "minus"),
)
_KEY = re.compile(
    rf"(?P<held>(?:(?:ctrl|alt|shift)\+)*)(?P<key>[a-z0-9]|f(?:[1-9]|1[0-9]|2[0-4])|escape|{'|'.join(_NAMED)})"
)
_ORDER = ("ctrl", "alt", "shift")
_SHOWN = {
    "pageup": "PageUp",
    "pagedown": "PageDown",
    "underscore": "_",
    "backslash": "\\",
    "slash": "/",
    "minus": "-",
    "escape": "Esc",
}
_TYPED = frozenset({*"abcdefghijklmnopqrstuvwxyz0123456789", "space", "underscore", "backslash", "slash", "minus"})
_TAKEN = {
    "ctrl+c": "it stops a run and leaves",
    "escape": "it stops a run and answers questions",
    "f7": "it answers whether calls run unasked",
    "f8": "it answers whether calls run unasked",
    "ctrl+i": "terminals send it as Tab",
    "ctrl+m": "terminals send it as Enter",
}
_OF_QUESTIONS = frozenset({"enter", "tab", "backspace", "delete", "up", "down", "left", "right", "home", "end"})
_WITH_ALT = frozenset("bdf")
"""Letters that arrive with Alt. Others arrive as Escape and the letter, and Escape has its own meaning."""


def action_named(name: str) -> UiAction | None:
    return _BY_NAME.get(name)


def read_key(text: str, action: UiAction) -> str:
    """The key in its usual form: `shift+CTRL+x` is `ctrl+shift+x`. Raises `ValueError` if the action cannot have it."""
    found = _KEY.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is not a key: write it as ctrl+x, alt+enter, shift+tab or f9")
    held = [name for name in _ORDER if name in found["held"].split("+")]
    key = "+".join([*held, found["key"]])
    if key in _TAKEN:
        raise ValueError(f"{key} cannot be bound: {_TAKEN[key]}")
    if found["key"] in _TYPED and held in ([], ["shift"]):
        raise ValueError(f"{key} cannot be bound: it types a character; hold ctrl or alt with it")
    if held == ["alt"] and len(found["key"]) == 1 and found["key"] not in _WITH_ALT:
        raise ValueError(f"{key} cannot be bound: most terminals send it as Esc and {found['key']}")
    if action.place == "anywhere" and key in _OF_QUESTIONS:
        raise ValueError(f"{key} cannot be bound to {action.name}: questions and lists need it")
    return key


def shown_key(key: str) -> str:
    """The key as people write it: `Ctrl+X`."""
    return "+".join([_SHOWN.get(part, part.capitalize()) for part in key.split("+")])


def conflict_in(given: Mapping[str, tuple[str, ...]]) -> tuple[str, str] | None:
    """The first action in `given` that has a key of another action, and the problem in words; else `None`."""
    owners: dict[str, str] = {}
    for action in ACTIONS:
        for key in given.get(action.name, action.keys):
            other = owners.setdefault(key, action.name)
            if other != action.name:
                changed, kept = (action.name, other) if action.name in given else (other, action.name)
                return changed, f"{key} is also the key of {kept}: give one of the two another key"
    return None


class KeyMap:
    """The action of each key: the user's bindings, else the usual ones."""

    def __init__(self, given: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self.given = dict(given or {})
        self._usual = {key: action for action in ACTIONS for key in action.keys}
        self._own = {key: _BY_NAME[name] for name, keys in self.given.items() for key in keys}

    def keys_of(self, name: str) -> tuple[str, ...]:
        """The keys of an action; none if the user removed them."""
        return self.given.get(name, _BY_NAME[name].keys)

    def shown(self, name: str, most: int = 1) -> str:
        """The first keys of an action as people write them; empty if it has none."""
        return ", ".join([shown_key(key) for key in self.keys_of(name)[:most]])

    def usual(self, key: str, *, is_writing: bool) -> str | None:
        """The usual key of the action that is now bound to `key`; `None` if the key no longer does anything.

        If not `is_writing`, a question or a list has the focus, and only the actions for anywhere count.
        """
        if (action := self._own.get(key)) is not None and (is_writing or action.place == "anywhere"):
            return key if key in action.keys else action.keys[0]
        if (action := self._usual.get(key)) is not None and action.name in self.given:
            return None if is_writing or action.place == "anywhere" else key
        return key
