"""The frame of every page that we make: it needs nothing from anywhere and can do nothing to its reader.

Owns the head with the page's policy and style, and the bar in which colours are chosen. There is no script: folding is
the browser's own, and light or dark is chosen by the system or a radio button. The policy allows the page's own style,
by its hash, and pictures that are in it; every text is escaped besides, so that each of the two suffices.
"""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from html import escape
from importlib.resources import files

__all__ = ["bar", "head"]

_THEMES = ("Auto", "Light", "Dark")


def head(title: str, *, skip: str, style: str = "") -> str:
    """The page up to its first element: a link past everything to the element with the id `skip`.

    `title` has been through `one_line`; `style` comes after the common style, and is ours.
    """
    text, digest = _style(style)
    policy = f"default-src 'none'; style-src '{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<meta name="robots" content="noindex">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{text}</style>\n</head>\n<body>\n"
        f'<a class="skip" href="#{skip}">Skip to the {skip}</a>\n'
    )


def bar(*, has_contents: bool) -> str:
    """What can be pressed: the colours, and on a narrow screen the contents."""
    choices = "".join(
        f'<label><input type="radio" name="theme" id="theme-{name.lower()}"{" checked" if name == "Auto" else ""}>'
        f"<span>{name}</span></label>"
        for name in _THEMES
    )
    opener = '<label class="opener"><input type="checkbox" id="show-contents"><span>Contents</span></label>'
    return (
        f'<div class="bar">{opener if has_contents else ""}'
        f'<fieldset class="theme"><legend>Colours</legend>{choices}</fieldset></div>\n'
    )


@lru_cache(maxsize=4)
def _style(more: str) -> tuple[str, str]:
    """The page's style, and its hash as the policy wants it."""
    text = files(__package__ or __name__).joinpath("page.css").read_text(encoding="utf-8") + more
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return text, f"sha256-{digest}"
