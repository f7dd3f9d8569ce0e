"""Writes the frame of every HTML page: self-contained, without scripts, and harmless to the reader.

Owns the head, with the content security policy and the style, and the bar in which the reader chooses colours. Pages
use no scripts: the browser folds sections, and the system or a radio button selects light or dark. The policy allows
only the page's style, by its hash, and embedded images. All text is escaped as well, so either measure is enough alone.
"""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from html import escape
from importlib.resources import files

_THEMES = ("Auto", "Light", "Dark")


def head(title: str, *, skip: str, style: str = "") -> str:
    """Returns the start of the page, including the "skip" link to the element with the id `skip`.

    The caller has passed `title` through `one_line`. `style` is added to the common style and must be trusted.
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
    """Returns the bar with the choice of colours and, for narrow screens, the button for the contents."""
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


def scrolled_table(label: str, heads: str, rows: str) -> str:
    """Returns a table that can be scrolled with the keyboard, from the HTML of its heads and rows."""
    return (
        f'<div class="table" tabindex="0" role="region" aria-label="{escape(label)}"><table>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>"
    )


@lru_cache(maxsize=4)
def _style(more: str) -> tuple[str, str]:
    """Returns the style sheet, and its hash as the policy needs it."""
    text = files(__package__ or __name__).joinpath("page.css").read_text(encoding="utf-8") + more
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return text, f"sha256-{digest}"
