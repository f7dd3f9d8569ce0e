"""The HTML export: one page that needs nothing from anywhere and can do nothing to its reader.

Owns the frame (head, contents, header, totals) and the order of things; `blocks` has the messages. There is no script:
folding is the browser's own, and light or dark is chosen by the system or a radio button. The page's policy allows its
own style, by its hash, and pictures that are in it; every text is escaped besides, so that each of the two suffices.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from importlib.resources import files

from swink_agent.core.types import AgentMessage, extract_text
from swink_agent.memory.info import SessionInfo

from .blocks import anchor, entry_html
from .characters import one_line, visible
from .turns import Entry, Label, LabelAt, NoteAt, Prompt, Reply, cost_words, entries, moment, title_of, usage_words

__all__ = ["export_html"]

_THEMES = ("Auto", "Light", "Dark")


def export_html(
    info: SessionInfo, messages: Sequence[AgentMessage], *, labels: Sequence[LabelAt] = (), notes: Sequence[NoteAt] = ()
) -> str:
    """The session as one self-contained page."""
    out = [_head(info)]
    shown = list(entries(messages, labels, notes))
    contents = _contents(shown)
    out.append(_bar(bool(contents)))
    out.append(contents)
    out.append('<main id="session">\n')
    out.append(_header(info))
    before: Entry | None = None
    for entry in shown:
        goes_on = isinstance(entry, Reply) and isinstance(before, Reply)
        entry_html(entry, out, goes_on=goes_on, model=str(info.model or ""))
        before = entry
    if not shown:
        out.append('<p class="empty">Nothing has been said in this session.</p>\n')
    out.append("</main>\n</div>\n</body>\n</html>\n")
    return "".join(out)


# -- the frame -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _style() -> tuple[str, str]:
    """The page's style, and its hash as the policy wants it."""
    text = files(__package__ or __name__).joinpath("page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return text, f"sha256-{digest}"


def _head(info: SessionInfo) -> str:
    style, digest = _style()
    policy = f"default-src 'none'; style-src '{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<meta name="robots" content="noindex">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title_of(info))}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#session">Skip to the session</a>\n'
    )


def _bar(has_contents: bool) -> str:
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
        f'<div class="page{"" if has_contents else " alone"}">\n'
    )


def _contents(shown: Sequence[Entry]) -> str:
    lines: list[str] = []
    labels = 0
    for entry in shown:
        if isinstance(entry, Prompt):
            words = one_line(extract_text(entry.message.content), 90) or "(no text)"
            lines.append(f'<li><a href="#{anchor(entry.position)}"><bdi>{escape(words)}</bdi></a></li>\n')
        elif isinstance(entry, Label):
            lines.append(f'<li class="label"><bdi>{escape(one_line(entry.text, 60))}</bdi></li>\n')
            labels += 1
    if len(lines) < 2:
        return ""
    return f'<nav class="contents" aria-label="Contents"><h2>Contents</h2>\n<ol>\n{"".join(lines)}</ol></nav>\n'


def _header(info: SessionInfo) -> str:
    model = "" if info.model is None else str(info.model)
    if info.model is not None and info.model.thinking_level != "off":
        model += f", thinking {info.model.thinking_level.value.replace('_', ' ')}"
    facts = [
        ("Model", model),
        ("Folder", info.cwd),
        ("Started", moment(info.created) if info.created else ""),
        ("Last change", moment(info.updated) if info.updated else ""),
        ("Messages", f"{info.messages:,}"),
        ("Tokens", usage_words(info.usage).removesuffix(" tokens")),
        ("Cost", cost_words(info.cost)),
        ("Forked from", info.parent or ""),
        ("Session", info.id),
    ]
    rows = "".join(
        f"<div><dt>{name}</dt><dd><bdi>{escape(one_line(value, 400))}</bdi></dd></div>\n"
        for name, value in facts
        if value
    )
    out = [f'<header class="session">\n<h1 dir="auto">{escape(title_of(info))}</h1>\n<dl>\n{rows}</dl>\n']
    if info.problems:
        problems = "".join(f'<li dir="auto">{escape(visible(problem))}</li>' for problem in info.problems)
        out.append(
            '<aside class="problems"><strong>Problems with this session&#x27;s file</strong>'
            f"<ul>{problems}</ul></aside>\n"
        )
    out.append("</header>\n")
    return "".join(out)
